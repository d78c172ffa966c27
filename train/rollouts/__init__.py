"""Answers sampled from the model in training, with real searches in between: what reinforcement learns from."""
