"""`refinery watch RUN` and `refinery watch PROJECT`."""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refinery.reporting.watch import Frame

GROUP = "Results"
HELP = "show a run, or the run of a project, from another terminal: steps, rate, cost, rejected rows, latest examples"
READS_RUNS = True
_DRAWN_PER_SECOND = 4
_PRINTED_EVERY_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="output_dir of a distill, train or infer run, or a project")
    parser.add_argument("--once", action="store_true", help="print what is known now, and stop")


def run(arguments: argparse.Namespace) -> None:
    """Show the run until it ends; without a terminal, as a line every few seconds."""
    from refinery.project.live import is_project, project_frame
    from refinery.reporting.watch import frame_of

    look = partial(project_frame if is_project(arguments.folder) else frame_of, arguments.folder)
    if arguments.once:
        print(look().text)
        return
    with suppress(KeyboardInterrupt):
        (_draw if sys.stdout.isatty() else _print_lines)(look)


def _draw(look: "Callable[[], Frame]") -> None:
    """Redraw the frame in place, and leave the last one."""
    from rich.live import Live
    from rich.text import Text

    frame = look()
    with Live(Text(frame.text), auto_refresh=False) as live:
        while not frame.ended:
            time.sleep(1 / _DRAWN_PER_SECOND)
            frame = look()
            live.update(Text(frame.text), refresh=True)


def _print_lines(look: "Callable[[], Frame]") -> None:
    """Print a line when something has changed, with the examples that are new, and at the end the whole frame."""
    frame, shown = look(), ""
    while not frame.ended:
        if frame.line != shown:
            print("\n  ".join([frame.line, *frame.latest]), flush=True)
        shown = frame.line
        until = time.monotonic() + _PRINTED_EVERY_SECONDS
        while not frame.ended and time.monotonic() < until:
            time.sleep(1 / _DRAWN_PER_SECOND)
            frame = look()
    print(frame.text)
