"""Models behind endpoints: chat, completions, and how their responses are read."""
