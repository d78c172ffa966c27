"""Inference: the papers' decoders answer questions with trained checkpoints, and are evaluated."""
