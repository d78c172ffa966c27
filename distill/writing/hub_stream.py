"""Push labels to a hub dataset while they are made: a part for every `questions_per_part` questions, in atomic commits.

Part `n` holds the rows of questions n * size to (n + 1) * size, in order. A run that was killed makes the same parts again from its
store, and only those are sent that the hub lacks, or that differ because a rejected question has a label now. So no row is lost or
there twice.
"""

import logging
import queue
import shutil
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.utils import disable_progress_bars

from distill.recipe import DistillRecipe, LabelHubConfig
from distill.writing.parquet import write_rows
from refinery.contract.records import Record
from refinery.errors import HubError
from refinery.hub.dataset_card import dataset_card, provisional_card
from refinery.hub.growing_dataset import DatasetParts
from refinery.hub.push import card_files
from refinery.runtime.files.fingerprint import sha256, text_fingerprint
from refinery.runtime.recipe import recipe_hash
from refinery.runtime.run.run_dir import RunDir, read_run

_log = logging.getLogger(__name__)
_FOLDER = "hub_parts"  # in the run's folder: parts that are not on the hub yet


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of a part by split, as JSON lines, and how far the run was when it was handed over."""

    number: int
    lines: Mapping[str, list[bytes]]
    done: int
    rows_by_split: Mapping[str, int]


class HubStream:
    """Takes rows from a run and pushes them from a thread. While labels are made, a failing hub is logged, and its parts are sent later.

    `key` decides which rows a part has: it is made from the recipe and the inputs. Raises HubError if the repository cannot be opened.
    """

    def __init__(self, config: LabelHubConfig, output: RunDir, *, total: int, key: str) -> None:
        self._config, self._output, self._total, self._folder = config, output, total, f"labels/{key}"
        self._number = self._done = 0
        self._lines: dict[str, list[bytes]] = {}
        self._rows_by_split: Counter[str] = Counter()
        self._record_types: dict[str, type[Record]] = {}
        self._handed_over = time.monotonic()
        self._parts: queue.SimpleQueue[_Part | None] = queue.SimpleQueue()
        self._unsent: dict[str, Path] = {}
        self._hashes: dict[str, str] = {}
        self._fault: Exception | None = None
        disable_progress_bars()  # the run has one already
        shutil.rmtree(output / _FOLDER, ignore_errors=True)
        self._dataset = DatasetParts(config.to, private=config.private)
        if not self._splits_there():  # a run that is resumed leaves what it has pushed readable
            self._commit(_Part(0, {}, 0, {}))
        self._thread = threading.Thread(target=self._work, name="hub", daemon=True)
        self._thread.start()

    def add_row(self, split: str, line: bytes, record: type[Record]) -> None:
        """One row of the question in progress."""
        self._lines.setdefault(split, []).append(line)
        self._rows_by_split[split] += 1
        self._record_types[split] = record

    def end_question(self) -> None:
        """All rows of a question were added; it may have none."""
        self._done += 1
        if self._done % self._config.questions_per_part == 0:
            self._hand_over()
            self._number, self._lines = self._number + 1, {}
        elif time.monotonic() - self._handed_over > self._config.minutes * 60:
            self._hand_over()

    def _hand_over(self) -> None:
        lines = {split: list(lines) for split, lines in self._lines.items()}
        self._parts.put(_Part(self._number, lines, self._done, dict(self._rows_by_split)))
        self._handed_over = time.monotonic()

    def stop(self) -> None:
        """Push what there is, and wait for it. The run may be resumed."""
        self._hand_over()
        self._parts.put(None)
        self._thread.join()

    def finish(self, metrics: dict[str, Any]) -> str:
        """Push the rest with the final card, delete everything else, and check every part. Returns the address. Raises HubError."""
        record, command = read_run(self._output.path), f"refinery push {self._output.path} --to {self._config.to}"
        files = self._unsent | {
            "metrics.json": self._output / "metrics.json",
            "failures.jsonl": self._output / "failures.jsonl",
            **card_files(record, dataset_card(record, metrics, parts=self._folder)),
        }
        try:
            if self._fault:
                raise HubError(f"{self._config.to}: a part could not be made ({self._fault}).")
            self._dataset.commit(files, keeps=self._hashes.__contains__)
            self._dataset.check(self._hashes)
        except HubError as error:
            raise HubError(f"{error} All labels are in {self._output.path}; `{command}` pushes them.") from None
        shutil.rmtree(self._output / _FOLDER, ignore_errors=True)
        return self._dataset.address

    def _work(self) -> None:
        """Push parts until the run ends; those that arrive during a commit are all in the next one."""
        ended = False
        while not ended:
            arrived = [self._parts.get()]
            while not self._parts.empty():
                arrived.append(self._parts.get())
            ended = arrived[-1] is None
            self._push([part for part in arrived if part is not None])

    def _push(self, parts: Sequence[_Part]) -> None:
        """Write and push parts. No fault stops the labeling, and `finish` reports one that a later push cannot mend."""
        try:
            for part in parts:
                self._write(part)
            if parts:
                self._commit(parts[-1])
        except HubError as error:
            _log.warning("%s %d files are sent with the next push.", error, len(self._unsent))
        except Exception as error:
            self._fault = error

    def _write(self, part: _Part) -> None:
        """Write a part's Parquet files, in place of those of the same part that were unfinished."""
        for split, lines in part.lines.items():
            path = f"{self._folder}/{split}/{part.number:05d}.parquet"
            self._unsent[path] = self._output / _FOLDER / split / f"{part.number:05d}.parquet"
            self._unsent[path].parent.mkdir(parents=True, exist_ok=True)
            self._hashes[path] = sha256(write_rows(lines, self._unsent[path], self._record_types[split])).hex()

    def _commit(self, part: _Part) -> None:
        """Push the parts that are not on the hub, with a card that says how far the run is. Files of other runs are deleted."""
        record = read_run(self._output.path, pending=True)
        rows = dict.fromkeys(self._splits_there(), 0) | dict(part.rows_by_split)
        card = provisional_card(record, rows, done=part.done, total=self._total, parts=self._folder)
        self._dataset.commit(self._unsent | {"README.md": card.encode()}, keeps=lambda path: path.startswith(f"{self._folder}/"))
        for path in self._unsent.values():
            path.unlink(missing_ok=True)
        self._unsent.clear()

    def _splits_there(self) -> list[str]:
        """The splits of which the hub has parts of this run, from an earlier attempt."""
        own = (path.removeprefix(f"{self._folder}/") for path in self._dataset.paths if path.startswith(f"{self._folder}/"))
        return sorted({path.partition("/")[0] for path in own})


def open_stream(recipe: DistillRecipe, output: RunDir, total: int, inputs: Mapping[str, str | None]) -> HubStream:
    """What pushes rows to the recipe's hub. Raises HubError before anything is paid if it refuses."""
    assert recipe.hub is not None
    return HubStream(recipe.hub, output, total=total, key=text_fingerprint([recipe_hash(recipe), *map(str, inputs.items())]))
