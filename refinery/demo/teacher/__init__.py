"""The demo's teacher: what it knows, how it reads prompts, and what it replies."""
