"""Kinds of modules, one file each: the cases that a question's annotations give, and the grading of the replies."""
