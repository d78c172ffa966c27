"""A run: its folder, progress, shards and command."""
