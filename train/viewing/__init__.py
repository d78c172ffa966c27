"""Display of train runs as a page."""
