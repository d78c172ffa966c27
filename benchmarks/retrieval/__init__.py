"""The measurements of `python -m benchmarks.retrieval`."""
