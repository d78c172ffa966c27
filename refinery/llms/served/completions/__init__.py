"""Prefix trees over servers that complete a text."""
