"""Show runs to people: in a terminal, as a page, and as figures."""
