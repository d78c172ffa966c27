"""Indexes on disk: built in parts, resumable, and verified when they are opened."""
