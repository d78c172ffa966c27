"""One file for each task that a model learns; `base` says what such a file declares."""
