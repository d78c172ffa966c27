"""A distill run's rows, as they lie on disk."""
