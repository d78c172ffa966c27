"""TriviaQA as released, open (`unfiltered-web-*.json`) and reading comprehension (`qa/wikipedia-*.json`, `qa/web-*.json`).

The documents for reading comprehension are in `evidence/` next to `qa/`. Those that exist become passages, each a whole document. No
passage is marked as supporting, because the release says only that the answer occurs in it.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from refinery.contract.records import Passage, Question, read_text
from refinery.questions.base import DatasetRow, distinct, iter_dataset, load_json, numbered, parse_row


class _Release(DatasetRow):
    Data: list[Any]


class _Answer(DatasetRow):
    Value: str
    Aliases: list[str]
    HumanAnswers: list[str] = []


class _Page(DatasetRow):
    Title: str = ""
    Filename: str | None = None


class _Row(DatasetRow):
    QuestionId: str
    Question: str
    Answer: _Answer | None = None  # the test sets have none
    EntityPages: list[_Page] = []
    SearchResults: list[_Page] = []


def read(path: Path) -> Iterator[Question]:
    """Read a release file. A passage's id is its path below `evidence`. Raises RecordError for a path that leads out of that folder."""
    release = parse_row(load_json(path), _Release, where=str(path))
    to_questions = partial(_to_questions, evidence=path.parent.parent / "evidence")
    return iter_dataset(path, _Row, to_questions, rows=numbered(path, release.Data))


def _to_questions(row: _Row, *, evidence: Path) -> list[Question]:
    answer = row.Answer
    pages = [(f"wikipedia/{page.Filename}", page.Title) for page in row.EntityPages if page.Filename]
    pages += [(f"web/{page.Filename}", page.Title) for page in row.SearchResults if page.Filename]
    passages = [Passage(id=name, title=title, text=read_text(evidence / name)) for name, title in pages if _is_there(evidence, name)]
    return [
        Question(
            id=row.QuestionId,
            text=row.Question.strip(),
            answers=distinct([answer.Value, *answer.Aliases, *answer.HumanAnswers]) if answer else [],
            passages=passages or None,
            dataset="triviaqa",
        )
    ]


def _is_there(evidence: Path, name: str) -> bool:
    if ".." in Path(name).parts:
        raise ValueError(f"field 'Filename': '{name}' leads out of {evidence}.")
    return (evidence / name).is_file()
