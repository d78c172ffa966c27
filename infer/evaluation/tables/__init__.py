"""Tables over finished runs."""
