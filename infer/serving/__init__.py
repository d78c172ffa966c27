"""Decoders behind a chat API."""
