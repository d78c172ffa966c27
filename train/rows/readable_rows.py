"""Training rows in parts that a person can read: text that is trained, and text that the model only reads.

The first rows are kept with the run (`first_rows.jsonl`), because its data files may be gone when someone looks at it.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from refinery.contract.records import Record, read_records, write_records
from refinery.contract.segments import IGNORED_LABEL, SegmentKind
from refinery.contract.tokenizer import Tokenizer
from train.recipe import TrainRecipe
from train.rows.data import labels_of

FIRST_ROWS_FILE = "first_rows.jsonl"
_KEPT_ROWS = 5

Token = tuple[int, SegmentKind, bool]  # id, kind, whether it is a target
Part = tuple[str, SegmentKind, bool]  # text, kind, whether it is trained


class ShownRow(Record):
    """A training row as it was given to the trainer."""

    question_id: str
    tokens: int
    parts: list[Part]


def row_tokens(row: Any, recipe: TrainRecipe) -> list[Token]:
    """The tokens that the model reads and writes for a row, in order; an encoder only reads."""
    if recipe.family == "causal":
        targets = (label != IGNORED_LABEL for label in row.labels)
        return list(zip(row.input_ids, row.kinds, targets, strict=True))
    read: list[Token] = [(token_id, "prompt", False) for token_id in row.input_ids]
    written = zip(row.labels, row.kinds, strict=True) if recipe.family == "seq2seq" else ()
    return read + [(token_id, kind, True) for token_id, kind in written]


def token_parts(tokens: Sequence[Token], tokenizer: Tokenizer) -> Iterator[Part]:
    """The tokens as text. A letter of several tokens can be read only with its neighbors, so tokens that train alike are decoded as one."""
    for (kind, trained), span in groupby(tokens, key=lambda token: token[1:]):
        yield tokenizer.decode([token_id for token_id, _, _ in span], clean_up_tokenization_spaces=False), kind, trained


def trained_label(row: Any, recipe: TrainRecipe) -> str | None:
    """The one target that is not a token: a classifier's label."""
    if recipe.family != "classifier":
        return None
    return labels_of(recipe)[row.labels[0]]


def keep_first_rows(rows: Sequence[Any], recipe: TrainRecipe, tokenizer: Tokenizer) -> None:
    """Write the first rows to the run's folder."""
    write_records(recipe.output_dir / FIRST_ROWS_FILE, (_shown(row, recipe, tokenizer) for row in islice(rows, _KEPT_ROWS)))


def read_first_rows(output_dir: Path) -> list[ShownRow]:
    """The rows that a run has kept; empty for an older version's run."""
    path = output_dir / FIRST_ROWS_FILE
    return read_records(path, ShownRow) if path.exists() else []


def _shown(row: Any, recipe: TrainRecipe, tokenizer: Tokenizer) -> ShownRow:
    tokens, label = row_tokens(row, recipe), trained_label(row, recipe)
    parts = [*token_parts(tokens, tokenizer), *([(label, "label", True)] if label else [])]
    return ShownRow(
        question_id=row.question_id, tokens=len(tokens), parts=[(_legible(text), kind, trained) for text, kind, trained in parts]
    )


def _legible(text: str) -> str:
    """The text without lone surrogates, which a file cannot contain."""
    return text.encode("utf-8", "replace").decode()
