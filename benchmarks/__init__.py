"""Measurements of this project beside its alternatives, run from a checkout."""
