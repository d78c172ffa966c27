"""Read documents in a separate process, because a parser may take hours or all memory for a few bytes, or crash.

    python -m refinery.passages.documents.reader_process MOST_BYTES

starts that process, with a limit on its memory. It reads one document at a time from its input, a line of JSON and the content, and writes
a line of JSON. It exits at the end of its input, or when a document takes too long.
"""

import faulthandler
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

from pydantic_core import from_json, to_json

from refinery.errors import RecordError, UnreadableDocumentError
from refinery.passages.documents.base import Block, Document, Heading
from refinery.passages.documents.read import log_once, parse_document
from refinery.runtime.concurrency.subprocesses import module_command, module_environment

_SECONDS, _SECONDS_PER_MB = 60, 10  # per document, several times the time of a slow format
_MOST_MEMORY = 4 << 30  # bytes
_READY = b"ready\n"


def read_document(content: bytes, path: Path) -> Document:
    """Read a document within a limit of seconds and bytes.

    Raises UnreadableDocumentError, and RecordError when the library for the format is not installed.
    """
    answer = _reader(os.getpid()).ask(content, path)
    for level, message in answer["remarks"]:
        log_once(level, message)
    if "unreadable" in answer:
        raise UnreadableDocumentError(answer["unreadable"])
    if "error" in answer:
        raise RecordError(answer["error"])
    found = answer["document"]
    return Document(found["title"], [Heading(**one) if "level" in one else Block(**one) for one in found["elements"]])


def _seconds(content: bytes) -> float:
    return _SECONDS + _SECONDS_PER_MB * len(content) / (1 << 20)


class _Reader:
    """The reader process, which is started on demand."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, content: bytes, path: Path) -> dict[str, Any]:
        with self._lock:
            process, begun = self._running(), time.monotonic()
            try:
                line = _exchange(process, content, path)
            except OSError:
                line = b""
            if line:
                return from_json(line)
            self._process = None
            status = process.wait()
        if time.monotonic() - begun >= _seconds(content):
            raise UnreadableDocumentError(f"{path}: was not read within {_seconds(content):.0f} seconds. Divide it, or remove it.")
        raise UnreadableDocumentError(f"{path}: ended the process that reads documents (status {status}). Save it again, or remove it.")

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self._process = _start()
            weakref.finalize(self, _end, self._process)
        return self._process


@cache
def _reader(process_id: int) -> _Reader:
    """The reader of this process, because a forked process must not use its parent's."""
    return _Reader()


def _start() -> "subprocess.Popen[bytes]":
    command = module_command(__name__, str(_MOST_MEMORY))
    process = subprocess.Popen(  # noqa: S603 - this module
        command,
        env=module_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # of libraries written in C
    )
    if cast("IO[bytes]", process.stdout).readline() != _READY:
        raise RecordError(f"the process that reads documents did not start. Run `{' '.join(command)}` to see why.")
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def _exchange(process: "subprocess.Popen[bytes]", content: bytes, path: Path) -> bytes:
    """The line that the process answers, or nothing if it ends."""
    request, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    header = {"path": str(path), "num_bytes": len(content), "seconds": _seconds(content)}
    request.write(json.dumps(header).encode() + b"\n" + content)
    request.flush()
    return answers.readline()


def main(argv: Sequence[str]) -> None:
    """Read documents for the process that started this one until it closes the input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # a library's output is not an answer
    _limit_memory(int(argv[0]))
    logging.getLogger("refinery").setLevel(logging.INFO)
    answers.write(_READY)
    answers.flush()
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        content = sys.stdin.buffer.read(request["num_bytes"])
        answers.write(_answer(content, Path(request["path"]), request["seconds"]) + b"\n")
        answers.flush()


def _limit_memory(num_bytes: int) -> None:
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (num_bytes if most == resource.RLIM_INFINITY else min(num_bytes, most), most))


def _answer(content: bytes, path: Path, seconds: float) -> bytes:
    remarks = _Remarks()
    logging.getLogger("refinery").addHandler(remarks)
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        try:
            return to_json({"document": parse_document(content, path), "remarks": remarks.lines})
        except UnreadableDocumentError as error:
            return to_json({"unreadable": str(error), "remarks": remarks.lines})
        except RecordError as error:
            return to_json({"error": str(error), "remarks": remarks.lines})
        finally:
            faulthandler.cancel_dump_traceback_later()
            logging.getLogger("refinery").removeHandler(remarks)


class _Remarks(logging.Handler):
    """Collects the readers' log messages for the parent process."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))


if __name__ == "__main__":
    main(sys.argv[1:])
