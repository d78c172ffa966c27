"""The launcher, the checkpoints, and the callbacks that watch a run."""
