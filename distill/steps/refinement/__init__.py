"""Steps of labeling RQ-RAG's trajectories."""
