"""A user's index: building, updating, measuring and searching it."""
