"""What the three stages of Refinery share: records, control tokens, segments, prompts, recipes, LLMs, retrievers."""

__version__ = "0.1.0"
