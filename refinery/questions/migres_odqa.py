"""The open-domain questions that MIGRES was evaluated on (`data/odqa.json` of its authors' repository): 200 of NQ, 200 of TriviaQA.

`reader: refinery.questions.migres_odqa:NQ` and `:TRIVIAQA` read one of the two, `migres_odqa` both.
"""

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, Reader, distinct, iter_dataset

_DATASETS = {"nq": "nq_open", "trivia": "triviaqa"}


def _listed(value: Any) -> Any:
    """TriviaQA's answers, which the file holds as a Python list of strings."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        raise ValueError("is not a list of texts as Python writes it") from None


class _Row(DatasetRow):
    question: str
    answers: Annotated[list[str], BeforeValidator(_listed)] = Field(validation_alias=AliasChoices("answer", "short_answers"))
    dataset: str


def _read(path: Path, only: str | None = None) -> Iterator[Question]:
    """The questions of a file, or those of one dataset in it; a question's id contains its row."""
    return iter_dataset(path, _Row, lambda row: [_to_question(row)] if only in (None, row.dataset) else [], split="dev")


def _to_question(row: _Row) -> Question:
    if row.dataset not in _DATASETS:
        raise ValueError(f"field 'dataset': '{row.dataset}' is not one of {', '.join(_DATASETS)}.")
    return Question(id="", text=row.question.strip(), answers=distinct(row.answers), dataset=_DATASETS[row.dataset])


READER = Reader(_read)
NQ = Reader(partial(_read, only="nq"))
TRIVIAQA = Reader(partial(_read, only="trivia"))
