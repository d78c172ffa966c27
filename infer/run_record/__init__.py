"""The inputs and records of a run: questions, ledger and provenance."""
