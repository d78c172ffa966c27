"""`refinery watch RUN`."""

import argparse
import sys
import time
from contextlib import suppress
from pathlib import Path

GROUP = "Results"
HELP = "show a run in progress from another terminal: rate, cost, rejected rows, latest examples"
READS_RUNS = True
_DRAWN_PER_SECOND = 4
_PRINTED_EVERY_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="output_dir of a distill, train or infer run")
    parser.add_argument("--once", action="store_true", help="print what is known now, and stop")


def run(arguments: argparse.Namespace) -> None:
    """Show the run until it ends; without a terminal, as a line every few seconds."""
    from refinery.reporting.watch import frame_of

    if arguments.once:
        print(frame_of(arguments.folder).text)
        return
    with suppress(KeyboardInterrupt):
        (_draw if sys.stdout.isatty() else _print_lines)(arguments.folder)


def _draw(folder: Path) -> None:
    """Redraw the frame in place, and leave the last one."""
    from rich.live import Live
    from rich.text import Text

    from refinery.reporting.watch import frame_of

    frame = frame_of(folder)
    with Live(Text(frame.text), auto_refresh=False) as live:
        while not frame.ended:
            time.sleep(1 / _DRAWN_PER_SECOND)
            frame = frame_of(folder)
            live.update(Text(frame.text), refresh=True)


def _print_lines(folder: Path) -> None:
    """Print a line when something has changed, with the examples that are new, and at the end the whole frame."""
    from refinery.reporting.watch import frame_of

    frame, shown = frame_of(folder), ""
    while not frame.ended:
        if frame.line != shown:
            print("\n  ".join([frame.line, *frame.latest]), flush=True)
        shown = frame.line
        until = time.monotonic() + _PRINTED_EVERY_SECONDS
        while not frame.ended and time.monotonic() < until:
            time.sleep(1 / _DRAWN_PER_SECOND)
            frame = frame_of(folder)
    print(frame.text)
