"""Load the passages of a corpus into an engine that keeps them: in batches, several on their way at once, and resumable."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from refinery.contract.records import Passage, Record, write_records
from refinery.passages.corpus import batches
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.runtime.run.progress import Progress

_DONE_FILE = "loaded.json"

# (position of the first passage, passages, what `prepare` made of them)
Send = Callable[[int, Sequence[Passage], Any], None]


class _Loaded(Record):
    done: int


def store_name(name: str, corpus_hash: str, built_with: str) -> str:
    """The collection of one corpus and the options it is built with. Another load never writes into it."""
    return f"{name}_{text_fingerprint([corpus_hash, built_with])}"


def load_passages(
    passages: Sequence[Passage],
    folder: Path,
    send: Send,
    *,
    prepare: Callable[[Sequence[Passage]], Any] = lambda _: None,
    most: int,
    at_once: int,
) -> None:
    """`send` every batch of at most `most` passages, `at_once` of them on threads, while the next is prepared.

    A file in `folder` counts the passages that have arrived, so that a later call continues after them. A batch may be sent twice.
    """
    marker = folder / _DONE_FILE
    done = start = _Loaded.model_validate_json(marker.read_text(encoding="utf-8")).done if marker.exists() else 0
    sent: deque[tuple[Future[None], int]] = deque()
    with ThreadPoolExecutor(at_once) as threads, Progress("load passages", total=len(passages)) as progress:
        progress.advance(done)

        def arrive() -> None:
            nonlocal done
            future, count = sent.popleft()
            future.result()
            done += count
            write_records(marker, [_Loaded(done=done)])
            progress.advance(count)

        for batch in batches(passages, start=start, most=most):
            sent.append((threads.submit(send, start, batch, prepare(batch)), len(batch)))
            start += len(batch)
            if len(sent) == at_once:
                arrive()
        while sent:
            arrive()


def forget_progress(folder: Path) -> None:
    """Remove the count, which is of no use once everything has arrived."""
    (folder / _DONE_FILE).unlink(missing_ok=True)
