"""A text read as an object of a known shape."""
