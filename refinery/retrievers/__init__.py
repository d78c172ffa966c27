"""Retrievers, all with one protocol."""
