"""Checkpoints: where their files are, which family they belong to, and how they are loaded."""
