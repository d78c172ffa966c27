"""The demo's teacher: its knowledge, its reading of prompts, and its replies."""
