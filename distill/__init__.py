"""Distillation: a teacher labels self-knowledge, relevance, decompositions and control-token trajectories."""
