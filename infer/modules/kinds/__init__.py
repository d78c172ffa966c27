"""Kinds of modules, one file each: the cases that annotations make of a question, and what the replies to them are worth."""
