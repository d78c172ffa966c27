"""Readers: one file per dataset in its original schema, and `jsonl` for your own questions."""
