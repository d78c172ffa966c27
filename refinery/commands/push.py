"""`refinery push RUN --to OWNER/NAME`."""

import argparse
from pathlib import Path

GROUP = "Models"
HELP = "push a finished train or distill run to a hub, and prove that it arrived"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="output_dir of the run")
    parser.add_argument("--to", required=True, metavar="OWNER/NAME", help="the repository; made where there is none")
    visibility = parser.add_mutually_exclusive_group()
    visibility.add_argument("--private", action="store_true", default=True, help="only you and those you name can see it (the default)")
    visibility.add_argument("--public", dest="private", action="store_false", help="everybody can see it")
    parser.add_argument("--revision", default="main", metavar="BRANCH", help="the branch that gets the run (default: main)")
    parser.add_argument("--dry-run", action="store_true", help="print the card and stop")


def run(arguments: argparse.Namespace) -> None:
    """Push, or show the card that would be pushed."""
    from refinery.hub.push import card, push
    from refinery.text import printable

    if arguments.dry_run:
        print(printable(card(arguments.folder, arguments.to)))
    else:
        print(printable(push(arguments.folder, arguments.to, private=arguments.private, revision=arguments.revision)))
