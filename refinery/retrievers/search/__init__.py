"""Helpers that retrievers share: the search cache, encoders and the HTTP contract."""
