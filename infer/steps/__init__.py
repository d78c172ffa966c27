"""What decoders share: calls of the model, selections, filters and scorers."""
