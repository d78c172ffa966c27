"""The records that pass between the stages, and how they are read and written as JSON Lines."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from refinery.errors import RecordError

Action = Literal["rewrite", "decompose", "disambiguate", "respond", "answer"]


class Record(BaseModel):
    """Base of every record: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Passage(Record):
    """One retrievable text."""

    id: str
    title: str = ""
    text: str


class SubQuestion(Record):
    """One step of a gold decomposition; `#1` in the text stands for the first sub-question's answer (as MuSiQue writes it).

    `supporting` holds ids of the passages that answer this step: None where nobody annotated them, empty where it needs none.
    """

    text: str
    answer: str | None = None
    supporting: list[str] | None = None


class Question(Record):
    """What the user asked, with whatever the dataset knows about it.

    `supporting` holds ids of the passages that answer it, `passages` its own candidate passages where the dataset gives them.
    """

    id: str
    text: str
    answers: list[str] = []
    choices: list[str] | None = None
    passages: list[Passage] | None = None
    supporting: list[str] | None = None
    decomposition: list[SubQuestion] | None = None
    history: list[str] | None = None
    type: str | None = None
    dataset: str = ""
    split: str = ""

    @field_validator("text")
    @classmethod
    def _not_blank(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("the question is empty")
        return text


class Provenance(Record):
    """Where a distilled row comes from: enough to find, price or repeat the requests that made it."""

    task: str
    recipe_hash: str
    prompt: str | None = None
    prompt_hash: str | None = None
    model: str | None = None
    parameters: dict[str, Any] = {}
    request_ids: list[str] = []
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    cost_usd: float | None = None


class KnowledgeLabel(Record):
    """Self-knowledge (RA-ISF App. A.1): whether the target model answers the question closed-book."""

    question_id: str
    question: str
    label: Literal["know", "unknow"]
    reply: str | None = None
    provenance: Provenance | None = None


class RelevanceLabel(Record):
    """Passage relevance (RA-ISF App. A.2, D): whether the passage is relevant and sufficient to answer the question."""

    question_id: str
    question: str
    passage: Passage
    label: Literal["relevant", "irrelevant"]
    provenance: Provenance | None = None


class Decomposition(Record):
    """Sub-questions of a question (RA-ISF App. A.3); a later one may refer to an earlier answer as `#1`."""

    question_id: str
    question: str
    sub_questions: list[str]
    provenance: Provenance | None = None


class Step(Record):
    """One step of a trajectory: what the model wrote, and for a search the passages that came back."""

    action: Action
    text: str
    passages: list[Passage] = []
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class Trajectory(Record):
    """Steps from a question to its answer: a teacher's trace, a training row, or one path of a decoder's tree."""

    question_id: str
    question: str
    steps: list[Step]
    provenance: Provenance | None = None

    @property
    def answer(self) -> str | None:
        """The text of the closing answer step, or None while the trajectory is unfinished."""
        last = self.steps[-1] if self.steps else None
        return last.text if last is not None and last.action == "answer" else None


R = TypeVar("R", bound=Record)


def read_records(path: str | Path, record: type[R]) -> list[R]:
    """Read a JSON Lines file of one record type. Raises RecordError naming file, line and what is wrong."""
    lines = read_text(Path(path)).split("\n")  # splitlines() would also split at U+2028 inside a text
    rows = [parse_record(line, record, where=f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise RecordError(f"{path}: has no rows. It should hold one {record.__name__} per line.")
    return rows


def read_text(path: Path) -> str:
    """A file's text. Raises RecordError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}). Check the path in the recipe.") from None
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8 at byte {error.start}. Save the file as UTF-8.") from None


def parse_record(line: str, record: type[R], *, where: str) -> R:
    """One JSON line to a record; `where` opens the error message."""
    try:
        return record.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise RecordError(f"{where}: not valid JSON at column {error.colno} ({error.msg}).") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "row"
        raise RecordError(f"{where}: field '{field}': {first['msg']}. Expected a {record.__name__} row.") from None


def write_records(path: str | Path, rows: Iterable[Record]) -> int:
    """Write rows as JSON Lines through a temporary file, so a half-written file never has the final name. Returns the count."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    count = 0
    with partial.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(row.model_dump_json(exclude_none=True) + "\n")
            count += 1
    partial.replace(path)
    return count
