"""The records that pass between the stages, and how they are read and written as JSON Lines."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from refinery.contract.split_name import SPLIT_RULE, is_split
from refinery.errors import RecordError
from refinery.text import not_utf8, without_mark

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


class Disambiguation(Record):
    """One reading of an ambiguous question, with its short answers where the dataset has them (ASQA's `qa_pairs`)."""

    text: str
    answers: list[str] = Field(default_factory=list)


class Question(Record):
    """What the user asked, with whatever the dataset knows about it.

    `supporting` holds ids of the passages that answer it, `passages` its own candidate passages where the dataset gives them. With
    `choices`, `answers` holds the letter of the right one. `history` is the dialogue so far: the user's turn, the assistant's, and so on.
    `supporting_hash` is the corpus hash of the supporting passages of a question that was written from them.
    """

    id: str
    text: str
    answers: list[str] = Field(default_factory=list)
    choices: list[str] | None = None
    passages: list[Passage] | None = None
    supporting: list[str] | None = None
    supporting_hash: str | None = None
    decomposition: list[SubQuestion] | None = None
    disambiguations: list[Disambiguation] | None = None
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

    @field_validator("split")
    @classmethod
    def _names_a_file(cls, split: str) -> str:
        if split and not is_split(split):
            raise ValueError(f"{split[:80]!r} cannot name a file of labels. {SPLIT_RULE}")
        return split


class Provenance(Record):
    """Where a distilled row comes from: enough to find, price or repeat the requests that made it."""

    task: str
    recipe_hash: str
    prompts: dict[str, str] = Field(default_factory=dict)  # name to hash
    model: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    request_ids: list[str] = Field(default_factory=list)
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    cost_usd: float | None = None


class JudgeLabel(Record):
    """Base of what judges learn: a question, what is judged of it, and the field `label`, whose type names both labels."""

    question_id: str
    question: str
    if TYPE_CHECKING:  # a subclass has it as a field, in its own place among those that are written, and of two strings
        label: Any


class KnowledgeLabel(JudgeLabel):
    """Self-knowledge (RA-ISF App. A.1): whether the target model answers the question closed-book.

    `share` is the mean score of its `replies` (with exact match the share of right ones); a teacher that says what it knows (App. D)
    leaves them empty.
    """

    label: Literal["know", "unknow"]
    share: float | None = None
    replies: list[str] = Field(default_factory=list)
    provenance: Provenance | None = None


class RelevanceLabel(JudgeLabel):
    """Passage relevance (RA-ISF App. A.2, D): whether the passage is relevant and sufficient to answer the question.

    `order_agrees` says whether a teacher that judged the passages in both orders gave this one the same label twice.
    """

    passage: Passage
    label: Literal["relevant", "irrelevant"]
    order_agrees: bool | None = None
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
    passages: list[Passage] = Field(default_factory=list[Passage])
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class Reading(Record):
    """What of a path RQ-RAG's own scripts score besides what the model wrote (`fidelity: official`).

    `num_tokens` and `logprob` (their sum) are of the prompt and all that was inserted; `closed` says of each step whether it ends in
    `[EOS]`, `blank_tokens` how many tokens of white space open the answer.
    """

    num_tokens: int
    logprob: float
    closed: list[bool]
    blank_tokens: int


class Turn(Record):
    """An earlier turn of a dialogue. A plain reply is read and never trained; one made of steps is trained like the last."""

    question: str
    reply: str | list[Step]


class Trajectory(Record):
    """Steps from a question to its answer: a teacher's trace, a training row, or one path of a decoder's tree.

    `system_prompt` is the one of its kind of question, `answer_by` says whose words the answer is where rows of both sorts are mixed,
    `reading` is kept of a tree's path that is selected as RQ-RAG's scripts select, `right_probability` is what a trained selector gives the
    path of ending in a right answer.
    """

    question_id: str
    question: str
    steps: list[Step]
    history: list[Turn] | None = None
    system_prompt: str | None = None
    answer_by: Literal["teacher", "dataset"] | None = None
    provenance: Provenance | None = None
    reading: Reading | None = None
    right_probability: float | None = None

    @property
    def answer(self) -> str | None:
        """The text of the closing answer step, or None while the trajectory is unfinished."""
        last = self.steps[-1] if self.steps else None
        return last.text if last is not None and last.action == "answer" else None


class SelectionLabel(JudgeLabel):
    """Whether a path of an RQ-RAG tree ends in a right answer: what a selector learns to choose by (the open problem of Sec. 4.3)."""

    path: Trajectory
    label: Literal["right", "wrong"]
    provenance: Provenance | None = None


class Preference(Record):
    """Two paths of one tree, the first of which ends in a right answer and the second does not (for DPO)."""

    question_id: str
    question: str
    chosen: Trajectory
    rejected: Trajectory
    provenance: Provenance | None = None


class PromptCompletion(Record):
    """One call of a prompt-only method, as a student learns it: the prompt that it will read and the reply that it should write."""

    question_id: str
    question: str
    step: str
    prompt: str
    reply: str
    provenance: Provenance | None = None


R = TypeVar("R", bound=Record)


def read_records(path: str | Path, record: type[R]) -> list[R]:
    """Read a JSON Lines file of one record type. Raises RecordError naming file, line and what is wrong."""
    rows = list(iter_records(path, record))
    if not rows:
        raise RecordError(f"{path}: has no rows. It should hold one {record.__name__} per line.")
    return rows


def iter_records(path: str | Path, record: type[R]) -> Iterator[R]:
    """The rows of a JSON Lines file, read as they are asked for. Raises as `read_records`, but takes an empty file."""
    path = str(path)
    with _readable(path) as file:
        for number, line in enumerate(file, 1):  # bytes split at newlines only; text would also split at U+2028
            if row := (without_mark(line) if number == 1 else line).strip():
                yield parse_record(row, record, where=f"{path}:{number}")


def _readable(path: str | Path) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}). Check the path in the recipe.") from None


def read_text(path: Path) -> str:
    """A file's text. Raises RecordError when it cannot be read."""
    with _readable(path) as file:
        content = file.read()
    try:
        return without_mark(content).decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: {not_utf8(content, error)}") from None


def parse_record(line: bytes, record: type[R], *, where: str) -> R:
    """One JSON line to a record; `where` opens the error message."""
    try:
        return record.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid" or line.lstrip().startswith(b"[{"):
            raise RecordError(_json_fault(line, where)) from None
        field = ".".join(str(part) for part in first["loc"]) or "row"
        raise RecordError(f"{where}: field '{field}': {first['msg']}. Expected a {record.__name__} row.") from None


def _json_fault(line: bytes, where: str) -> str:
    if line.strip() == b"[" or line.lstrip().startswith(b"[{"):
        return f"{where}: begins a JSON array. Write one object a line, without brackets and commas around them."
    try:
        json.loads(line.decode())
    except UnicodeDecodeError as error:
        return f"{where}: {not_utf8(line, error, of=' of the line')}"
    except json.JSONDecodeError as error:
        return f"{where}: not valid JSON at column {error.colno} ({error.msg})."
    return f"{where}: not valid JSON."


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
