"""One row labeled, and all of them by workers."""
