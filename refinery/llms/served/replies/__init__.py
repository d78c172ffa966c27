"""Reading a text as an object of a known shape."""
