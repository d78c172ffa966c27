"""Runs as people look at them: in a terminal, as a page, as figures."""
