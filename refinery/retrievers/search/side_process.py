"""Search the postings of an index in further processes, because the threads of one wait for each other between the steps of a search.

    python -m refinery.retrievers.search.side_process FOLDER NUM_PASSAGES

is one of these processes. It reads one batch of searches from each line, and writes their hits as a line; it ends with its input.
"""

import logging
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from pydantic_core import from_json, to_json

from refinery.retrievers.search.postings import Found, Search, open_postings
from refinery.runtime.concurrency.subprocesses import module_command, module_environment

_SEARCHES_BEFORE = 64  # that come to a thread in batches before it starts a process, which takes as long as hundreds of searches
_READY = b"ready\n"

_log = logging.getLogger(__name__)


class SideProcesses:
    """The postings of an index in a folder, for several threads: one with much to search soon does so in a process of its own."""

    def __init__(self, folder: Path, num_passages: int) -> None:
        self._postings, self._arguments = open_postings(folder, num_passages), (str(folder), str(num_passages))
        self._of_thread = threading.local()

    def best_of_each(self, searches: Sequence[Search]) -> list[Found]:
        """What `Postings.best_of_each` finds."""
        process = self._process(len(searches))
        if process and process.ready.is_set():
            try:
                return process.best_of_each(searches)
            except (OSError, ValueError) as error:
                _log.warning("a process that searched beside this one has ended, and its searches go on in this one: %s", error)
                self._of_thread.process = None
        return self._postings.best_of_each(searches)

    def _process(self, batch: int) -> "_SideProcess | None":
        mine = self._of_thread
        if not hasattr(mine, "before"):
            mine.before, mine.process = 0, None
        if mine.before < _SEARCHES_BEFORE and batch > 1:
            mine.before += batch
            if mine.before >= _SEARCHES_BEFORE:
                mine.process = _SideProcess(self._arguments)
        return mine.process


class _SideProcess:
    """One process, which `ready` says has opened the postings."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.ready = threading.Event()
        process = subprocess.Popen(  # noqa: S603 - this module
            module_command(__name__, *arguments),
            env=module_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._input, self._output = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        weakref.finalize(self, _end, process)
        threading.Thread(target=_wait_until_ready, args=(process, self.ready), daemon=True).start()

    def best_of_each(self, searches: Sequence[Search]) -> list[Found]:
        """What `Postings.best_of_each` finds. Raises OSError or ValueError if the process has ended."""
        self._input.write(to_json(searches) + b"\n")
        self._input.flush()
        return [[(position, score) for position, score in hits] for hits in from_json(self._output.readline())]


def _wait_until_ready(process: "subprocess.Popen[bytes]", ready: threading.Event) -> None:
    if cast("IO[bytes]", process.stdout).readline() == _READY:
        ready.set()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def main(argv: Sequence[str]) -> None:
    """Search for the process that started this one until it closes the input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides what Ctrl-C ends
    postings = open_postings(Path(argv[0]), int(argv[1]))
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(to_json(postings.best_of_each(from_json(line))) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
