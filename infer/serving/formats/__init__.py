"""The formats in which endpoints read a request and write an answer."""
