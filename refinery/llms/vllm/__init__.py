"""Models that vLLM runs in this process: the engine, and what takes the place of an endpoint before it."""
