"""The measurements of `python -m benchmarks.infer`."""
