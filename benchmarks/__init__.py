"""Measurements of this project against its alternatives, run from a checkout."""
