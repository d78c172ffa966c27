"""Safe reading and writing of all kinds of files."""
