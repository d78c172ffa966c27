"""Infrastructure of every stage: recipes, plugins, run directories, the command line, progress, and batching."""
