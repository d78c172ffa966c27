"""Training: labels and trajectories become adapters or whole checkpoints."""
