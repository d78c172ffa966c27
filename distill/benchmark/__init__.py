"""`refinery bench distill`: what the engine does beside a mock endpoint in a process of its own."""
