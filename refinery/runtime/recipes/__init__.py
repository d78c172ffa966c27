"""From YAML and a command line to a recipe and its plugins."""
