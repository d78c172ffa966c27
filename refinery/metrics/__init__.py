"""Answer metrics, each named after the reference script that it reproduces."""
