"""Corpora: the sources of passages, and storage for millions of them."""
