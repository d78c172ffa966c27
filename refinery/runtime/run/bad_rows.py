"""Rows of users' files that cannot be read: they stop a run, or are skipped and counted where its recipe says so, up to a cap.

Readers call `bad_row` for a row that they cannot read, and `end_of_rows` after the last one. A stage reads in `skipping_bad_rows`.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from pydantic import Field

from refinery.errors import RecordError
from refinery.runtime.recipe import Recipe

_log = logging.getLogger(__name__)
_NAMED = 5
_ROWS_JUDGED = 1_000  # before so many rows of a file are read, its share of bad rows is taken of this number


class BadRowKeys(Recipe):
    """The keys of a recipe that say what happens to rows that cannot be read."""

    on_bad_row: Literal["raise", "skip"] = Field(
        default="raise", description="skip: leave out rows of files that cannot be read, and count and name them in metrics.json"
    )
    max_bad_rows: float = Field(
        default=0.01, description="how many may be skipped: below 1 a share of a file's rows (at least one row), otherwise a number", ge=0
    )


class BadRows:
    """The rows that were skipped so far, by file. A row that is read again is counted once."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._faults: dict[str, dict[str, None]] = {}

    def skip(self, source: str, fault: str, num_rows: int) -> None:
        """Leave out a row, the `num_rows`-th of its file. Raises RecordError where these are too many."""
        self._faults.setdefault(source, {})[fault] = None
        self.check(source, num_rows, max(num_rows, _ROWS_JUDGED))

    def check(self, source: str, num_rows: int, judged: int) -> None:
        """Raise RecordError if more rows of a file were skipped than the cap allows for `judged` rows."""
        faults = self._faults.get(source, {})
        if len(faults) > (max(1, self._most * judged) if 0 < self._most < 1 else self._most):
            raise RecordError(
                f"{source}: {len(faults)} of {num_rows:,} rows cannot be read, more than max_bad_rows={self._most:g} allows. "
                f"The first: {next(iter(faults))}"
            )

    def report(self) -> dict[str, Any]:
        """For `metrics.json`: how many rows were skipped, and what is wrong with the first of them."""
        faults = [fault for of_source in self._faults.values() for fault in of_source]
        return {"skipped": len(faults), "first": faults[:_NAMED]}


_skipped: ContextVar[BadRows | None] = ContextVar("skipped_rows", default=None)


@contextmanager
def skipping_bad_rows(keys: BadRowKeys) -> Generator[None]:
    """Skip bad rows in this block, and in the tasks that are started in it, if the recipe says so. A warning at its end counts them.

    Inside another such block, the rows are counted there.
    """
    if _skipped.get() is not None:
        yield
        return
    skipped = BadRows(keys.max_bad_rows) if keys.on_bad_row == "skip" else None
    token = _skipped.set(skipped)
    try:
        yield
    finally:
        _skipped.reset(token)
        if skipped and (found := skipped.report())["skipped"]:
            _log.warning("%d rows cannot be read and are skipped. The first: %s", found["skipped"], found["first"][0])


def bad_row(error: RecordError, source: object, num_rows: int) -> None:
    """Skip a row that cannot be read, the `num_rows`-th of `source`, or raise its error."""
    if (skipped := _skipped.get()) is None:
        raise error
    skipped.skip(str(source), str(error), num_rows)


def end_of_rows(source: object, num_rows: int) -> None:
    """Raise RecordError if too many of the `num_rows` rows of `source` were skipped."""
    if num_rows and (skipped := _skipped.get()) is not None:
        skipped.check(str(source), num_rows, num_rows)


def bad_rows_report() -> dict[str, Any]:
    """What `metrics.json` says about skipped rows: nothing where they stop the run."""
    skipped = _skipped.get()
    return {"bad_rows": skipped.report()} if skipped else {}
