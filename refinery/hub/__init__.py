"""Pushing a finished run to a model or dataset hub, with a card that says how it was made, and proving that it arrived."""
