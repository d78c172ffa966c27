"""Show labels to people: before the run, as a page, and as figures."""
