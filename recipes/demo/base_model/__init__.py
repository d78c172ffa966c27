"""The tiny base checkpoint, and how it is rebuilt."""
