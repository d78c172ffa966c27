"""Retrievers behind one protocol."""
