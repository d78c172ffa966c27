"""`python -m benchmarks.train`: supervised tokens per second of packed rows, compared with padded ones and with TRL's defaults."""
