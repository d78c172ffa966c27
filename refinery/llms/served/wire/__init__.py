"""Lenient reading of server responses."""
