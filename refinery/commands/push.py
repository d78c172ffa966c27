"""`refinery push RUN --to OWNER/NAME`."""

import argparse
from pathlib import Path

GROUP = "Models"
HELP = "push a finished train or distill run to a hub, and verify that it arrived"
READS_RUNS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="output_dir of the run")
    parser.add_argument("--to", required=True, metavar="OWNER/NAME", help="the repository; created if it does not exist")
    visibility = parser.add_mutually_exclusive_group()
    visibility.add_argument("--private", action="store_true", default=True, help="only people with access can see it (the default)")
    visibility.add_argument("--public", dest="private", action="store_false", help="everyone can see it")
    parser.add_argument("--revision", default="main", metavar="BRANCH", help="the branch to push to (default: main)")
    parser.add_argument("--dry-run", action="store_true", help="print the card and stop")


def run(arguments: argparse.Namespace) -> None:
    """Push the run, or print the card that would be pushed."""
    from refinery.hub.push import card, push
    from refinery.text import printable

    if arguments.dry_run:
        print(printable(card(arguments.folder, arguments.to)))
    else:
        print(printable(push(arguments.folder, arguments.to, private=arguments.private, revision=arguments.revision)))
