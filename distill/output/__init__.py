"""Write and merge the rows of distill runs on disk."""
