"""Files of every kind, read and written safely."""
