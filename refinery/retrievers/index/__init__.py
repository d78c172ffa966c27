"""Indexes on disk: built part by part, resumable, checked when they are opened."""
