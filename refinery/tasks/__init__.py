"""One file per task that a model learns. `base` defines what such a file declares."""
