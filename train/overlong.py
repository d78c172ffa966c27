"""Rows that are longer than `max_length`: dropped, refused, or fitted by shortening their passages. Whatever is done is counted."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from refinery.errors import RecordError
from refinery.records import Passage, RelevanceLabel, Step, Trajectory
from refinery.segments import EncodedRow
from train.recipe import TrainRecipe


def fit_rows(
    records: Sequence[Any], recipe: TrainRecipe, encode_record: Callable[[Any], EncodedRow]
) -> tuple[list[EncodedRow], dict[str, int]]:
    """Rows of at most `recipe.max_length` tokens, in order, and what was done with the others under the names that metrics.json has.

    No row is ever cut: one that is too long goes, unless `overlong: shorten_evidence` finds passages whose ends it can do without.
    Raises RecordError for the first such row under `overlong: raise`, and when no row is left.
    """
    rows: list[EncodedRow] = []
    counts = {"rows_dropped_overlong": 0}
    if recipe.overlong == "shorten_evidence":
        counts |= {"rows_shortened": 0}
    for record in records:
        row = encode_record(record)
        if len(row.input_ids) > recipe.max_length:
            if recipe.overlong == "raise":
                raise RecordError(_too_long(record, row, recipe))
            shortened = _shortened(record, recipe, encode_record) if recipe.overlong == "shorten_evidence" else None
            counts["rows_shortened" if shortened else "rows_dropped_overlong"] += 1
            row = shortened
        if row is not None:
            rows.append(replace(row, question_id=record.question_id))
    if not rows:
        raise RecordError(f"{recipe.data[0]}: every row is longer than max_length {recipe.max_length}. Raise it.")
    return rows, counts


def _shortened(record: Any, recipe: TrainRecipe, encode_record: Callable[[Any], EncodedRow]) -> EncodedRow | None:
    """The row with every passage cut to its first n words, n as large as fits; None where even bare titles are too long."""

    def length(words: int) -> int:
        return len(encode_record(_with_short_passages(record, words)).input_ids)

    longest = max((len(passage.text.split()) for passage in _passages(record)), default=0)
    fitting = bisect_right(range(longest), recipe.max_length, key=length)
    return encode_record(_with_short_passages(record, fitting - 1)) if fitting else None


def _with_short_passages(record: Any, words: int) -> Any:
    """A common cap spares short passages: the longest lose words first, and each loses them from its end."""
    if isinstance(record, RelevanceLabel):
        return record.model_copy(update={"passage": _cut(record.passage, words)})
    history = [
        turn if isinstance(turn.reply, str) else turn.model_copy(update={"reply": _cut_steps(turn.reply, words)})
        for turn in record.history or []
    ]
    return record.model_copy(update={"steps": _cut_steps(record.steps, words), "history": history or None})


def _cut_steps(steps: Sequence[Step], words: int) -> list[Step]:
    return [step.model_copy(update={"passages": [_cut(passage, words) for passage in step.passages]}) for step in steps]


def _cut(passage: Passage, words: int) -> Passage:
    return passage.model_copy(update={"text": " ".join(passage.text.split()[:words])})


def _passages(record: Any) -> list[Passage]:
    if isinstance(record, RelevanceLabel):
        return [record.passage]
    if not isinstance(record, Trajectory):
        return []
    replies = [turn.reply for turn in record.history or [] if not isinstance(turn.reply, str)]
    return [passage for steps in [*replies, record.steps] for step in steps for passage in step.passages]


def _too_long(record: Any, row: EncodedRow, recipe: TrainRecipe) -> str:
    return (
        f"{recipe.data[0]}: the row of question {record.question_id!r} is {len(row.input_ids):,} tokens long, max_length is "
        f"{recipe.max_length:,}. Raise max_length, or choose overlong: drop or shorten_evidence."
    )
