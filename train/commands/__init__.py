"""The commands of `refinery` that work on trained models."""
