"""Language models behind one protocol: a Hugging Face engine, OpenAI-compatible endpoints, and a scripted fake."""
