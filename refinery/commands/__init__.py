"""One file per command: `HELP`, `add_arguments(parser)` and `run(arguments)`. Each imports what it runs only when it runs."""
