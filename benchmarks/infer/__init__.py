"""What `python -m benchmarks.infer` measures."""
