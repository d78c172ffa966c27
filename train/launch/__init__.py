"""The launcher, the checkpoints, and what watches a run."""
