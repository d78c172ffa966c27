"""Show train runs to people, as a page."""
