"""Steps that decoders share: model calls, selections, filters and scorers."""
