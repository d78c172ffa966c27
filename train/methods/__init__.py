"""How a model is trained and evaluated while it is trained."""
