"""One file per command: `GROUP` and `HELP` (in `refinery --help`), `add_arguments(parser)` and `run(arguments)`.

Each command imports the code that it needs only when it runs.
"""
