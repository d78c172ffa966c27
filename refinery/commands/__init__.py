"""One file per command: `GROUP` and `HELP` (in `refinery --help`), `add_arguments(parser)` and `run(arguments)`.

Each imports what it runs only when it runs.
"""
