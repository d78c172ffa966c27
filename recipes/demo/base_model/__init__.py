"""The code that rebuilds the tiny base checkpoint."""
