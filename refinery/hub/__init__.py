"""Pushing a finished run to a model or dataset hub, with a card about its origin, and verifying that it arrived."""
