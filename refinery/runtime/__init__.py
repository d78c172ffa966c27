"""What every stage runs on: recipes, plugins, run directories, the command line, progress, batching."""
