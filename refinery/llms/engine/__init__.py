"""The in-process engine: contexts over shared prefixes, batched."""
