"""Plain reference decoders, with which `python -m benchmarks.infer` and the tests compare the engine."""
