"""Where lines of text are on the pages of a PDF, and in which order they are read."""
