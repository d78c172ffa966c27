"""TriviaQA as released, open (`unfiltered-web-*.json`) and reading comprehension (`qa/wikipedia-*.json`, `qa/web-*.json`).

The documents for reading comprehension are in `evidence/` next to `qa/`. Those that exist become passages, each a whole document. No
passage is marked as supporting, because the release says only that the answer occurs in it.

The hub's copy holds pages as columns, with the documents inside (`wiki_context`, `search_context`). It has no `HumanAnswers`, which the
release counts among the gold answers.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, AliasGenerator, ConfigDict, Field

from refinery.contract.records import Passage, Question
from refinery.questions.base import DatasetRow, Reader, Rows, distinct, iter_dataset, load_json, numbered, parse_row
from refinery.runtime.files.text_file import read_text

_NO_ANSWER = "<unk>"  # in the hub's test sets; the release leaves the answer out


def _names(field: str) -> AliasChoices:
    """`entity_pages` is the hub's name, and `EntityPages` the release's."""
    return AliasChoices(field.title().replace("_", ""), field)


class _TriviaRow(DatasetRow):
    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=_names))


class _Release(DatasetRow):
    Data: list[Any]


class _Answer(_TriviaRow):
    value: str
    aliases: list[str]
    human_answers: list[str] = []


class _Page(_TriviaRow):
    title: str = ""
    filename: str | None = None
    context: str | None = Field(default=None, validation_alias=AliasChoices("wiki_context", "search_context"))


class _Row(_TriviaRow):
    question_id: str
    question: str
    answer: _Answer | None = None  # the test sets have none
    entity_pages: Annotated[list[_Page], Rows] = []
    search_results: Annotated[list[_Page], Rows] = []


def read(path: Path) -> Iterator[Question]:
    """Read a release file. A passage's id is its path below `evidence`. Raises RecordError for a path that leads out of that folder."""
    release = parse_row(load_json(path), _Release, where=str(path))
    to_questions = partial(_to_questions, evidence=path.parent.parent / "evidence")
    return iter_dataset(path, _Row, to_questions, rows=numbered(path, release.Data))


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs in the hub's columns. Pages without a text, as in `rc.nocontext`, are left out."""
    return iter_dataset(path, _Row, partial(_to_questions, evidence=None), rows=rows)


def _to_questions(row: _Row, *, evidence: Path | None) -> list[Question]:
    answer = row.answer if row.answer and row.answer.value != _NO_ANSWER else None
    pages = [(f"wikipedia/{page.filename}", page) for page in row.entity_pages if page.filename]
    pages += [(f"web/{page.filename}", page) for page in row.search_results if page.filename]
    texts = [(name, page.title, _text(page, name, evidence)) for name, page in pages]
    return [
        Question(
            id=row.question_id,
            text=row.question.strip(),
            answers=distinct([answer.value, *answer.aliases, *answer.human_answers]) if answer else [],
            passages=[Passage(id=name, title=title, text=text) for name, title, text in texts if text is not None] or None,
            dataset="triviaqa",
        )
    ]


def _text(page: _Page, name: str, evidence: Path | None) -> str | None:
    """A page's document, or None if it has none."""
    if evidence is None:
        return page.context or None
    if ".." in Path(name).parts:
        raise ValueError(f"field 'Filename': '{name}' leads out of {evidence}.")
    return read_text(evidence / name) if (evidence / name).is_file() else None


READER = Reader(read, of_rows, repositories=("mandarjoshi/trivia_qa",))
