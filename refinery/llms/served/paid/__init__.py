"""The cost of replies, and a store that pays for each only once."""
