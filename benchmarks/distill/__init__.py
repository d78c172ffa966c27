"""`python -m benchmarks.distill`: measure the engine against a mock endpoint in a separate process."""
