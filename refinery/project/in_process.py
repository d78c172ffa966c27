"""One step in this process, for steps that are so small that starting a process for each would take most of the time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

from refinery.project.jobs import COMMAND, Job
from refinery.project.process import check_code, log_of

# The `refinery` command: its words to its exit code.
Command = Callable[[Sequence[str]], int]


def runner_here(command: Command) -> Callable[[Job, Path], Awaitable[None]]:
    """A runner that calls `command` for each job. Only one job may run at a time, because the output of all of them is this process'."""

    async def run(job: Job, folder: Path) -> None:
        await asyncio.to_thread(_run, command, job, folder)

    return run


def _run(command: Command, job: Job, folder: Path) -> None:
    """Run the job with its output in its log. Raises StepFailed when it fails."""
    log = log_of(job, folder)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file, _output_in(file):
        code = next(
            (code for words in ((job.command, *job.arguments[len(COMMAND) + 1 :]), *job.then) if (code := _code(command, words))), 0
        )
    check_code(code, job, log)


def _code(command: Command, words: Sequence[str]) -> int:
    try:
        return command(words)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


@contextmanager
def _output_in(file: TextIO) -> Iterator[None]:
    # A handler of a file keeps its file.
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)
    ]
    streams = [handler.setStream(file) for handler in handlers]
    try:
        with redirect_stdout(file), redirect_stderr(file):
            yield
    finally:
        for handler, stream in zip(handlers, streams, strict=True):
            if stream is not None:
                handler.setStream(stream)
