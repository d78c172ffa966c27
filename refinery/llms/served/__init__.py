"""Models behind OpenAI-compatible servers: chat, completions, and what the servers send."""
