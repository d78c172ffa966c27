"""Labeled rows on disk, on the hub, and merged."""
