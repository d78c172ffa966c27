"""What replies cost, and paying for each once."""
