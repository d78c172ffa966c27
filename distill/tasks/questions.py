"""Questions from a user's own passages: the teacher writes questions with answers, and those that need the passages are kept.

A question is kept if the teacher finds its answer again from its passages, but not without them and, for two hops, not from one of them
alone. MuSiQue (Trivedi et al., 2022) filters out questions with shortcuts in this way, with trained models instead of a teacher.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.recipe import DistillRecipe
from distill.steps.linked_passages import linked_pairs
from distill.steps.stands_alone import reference_fault
from distill.teacher.teacher import RejectedRow, RequestLog, Teacher
from refinery.contract.records import Passage, Question, write_records
from refinery.metrics.squad import token_f1
from refinery.passages.corpus import corpus_hash
from refinery.passages.settings import SplitSettings
from refinery.prompts.render import render_prompt
from refinery.retrievers.base import read_passages
from refinery.runtime.recipe import Recipe
from refinery.text import normalize_answer


class Options(Recipe):
    """The passages to ask about, and how strictly answers are compared."""

    documents: Path | None = Field(default=None, description="folder of .txt and .md files to ask about; by default retriever.passages")
    words_per_passage: int = Field(
        default=100, description="maximum words of a passage of the documents (DPR Sec. 4.1); indexes of a folder use 100", ge=10
    )
    hops: Literal[1, 2] = Field(default=1, description="2: ask about pairs of passages, one of which mentions the other's title")
    links_per_passage: int = Field(default=3, description="maximum pairs that start from the same passage", ge=1)
    questions_per_passage: int = Field(default=1, description="questions per passage or pair", ge=1)
    min_f1: float = Field(
        default=0.8, description="lowest token F1 at which a reply that does not contain the answer still counts as right", gt=0, le=1
    )


def needs(options: Options) -> tuple[str, ...]:
    """The recipe keys that this task requires."""
    return ("teacher",) if options.documents else ("teacher", "retriever")


class Written(BaseModel):
    """One question and its answer."""

    question: Annotated[str, Field(min_length=1)]
    answer: Annotated[str, Field(min_length=1)]


class WrittenQuestions(BaseModel):
    """The questions that a passage or pair gave."""

    questions: list[Written]


class Answer(BaseModel):
    """An answer, empty where there is none."""

    answer: str


@dataclass(frozen=True, slots=True)
class Row:
    """One question to write: the `number`-th about a passage or a linked pair. Rows of the same passages share one call."""

    id: str
    passages: tuple[Passage, ...]
    number: int
    split: str = "train"


def rows(recipe: DistillRecipe) -> Iterator[Row]:
    """Every question that could be written, passage by passage. Raises RecordError if the passages cannot be read."""
    options: Options = recipe.task_options()
    passages = _passages(recipe, options)
    pairs = linked_pairs(passages, links_per_passage=options.links_per_passage)
    for asked_about in pairs if options.hops == 2 else ((passage,) for passage in passages):
        for number in range(1, options.questions_per_passage + 1):
            yield Row(f"{'+'.join(passage.id for passage in asked_about)}#{number}", asked_about, number)


def write_inputs(recipe: DistillRecipe, output: Path) -> None:
    """Write `passages.jsonl`, to which the questions' `supporting` ids refer, if the passages were cut from documents."""
    if recipe.task_options().documents:
        write_records(output / "passages.jsonl", _passages(recipe, recipe.task_options()))


def _passages(recipe: DistillRecipe, options: Options) -> Sequence[Passage]:
    if options.documents:
        return read_passages(options.documents, SplitSettings(words_per_passage=options.words_per_passage))
    if recipe.retriever is None or recipe.retriever.passages is None:
        raise options.fault("documents", "task 'questions' needs passages to ask about. Set it, or retriever.passages.")
    return read_passages(recipe.retriever.passages)


async def label(row: Row, context: LabelContext) -> list[Question]:
    """The row's question. Raises RejectedRow, with the reason, if it is not kept."""
    assert context.teacher is not None
    asked, options = RequestLog(), context.options
    prompt = "teacher_question" if len(row.passages) == 1 else "teacher_question_multi_hop"
    count = options.questions_per_passage
    reply = await context.teacher.ask(render_prompt(prompt, passages=row.passages, count=count), WrittenQuestions, asked)
    if len(reply.questions) < row.number:
        raise RejectedRow("too_few_questions", f"{len(reply.questions)} of {count} questions were written about {row.id}")
    written = reply.questions[row.number - 1]
    _check_wording(written)
    await _check_need(written, row, _Reader(context.teacher, written, options.min_f1, asked))
    return [
        Question(
            id=row.id,
            text=written.question.strip(),
            answers=[written.answer.strip()],
            supporting=[passage.id for passage in row.passages],
            supporting_hash=corpus_hash(row.passages),
            type="single_hop" if len(row.passages) == 1 else "two_hop",
            split=row.split,
        )
    ]


def _check_wording(written: Written) -> None:
    question, answer = (f" {normalize_answer(text)} " for text in (written.question, written.answer))
    if not question.strip() or not answer.strip():
        raise RejectedRow("malformed", f"question {written.question!r} or answer {written.answer!r} contains no words")
    if answer in question:
        raise RejectedRow("question_quotes_answer", f"{written.question!r} contains its answer {written.answer!r}")
    if fault := reference_fault(written.question):
        reason, words = fault
        raise RejectedRow(reason, f"{written.question!r} cannot be understood without its passage: '{words}'")


async def _check_need(written: Written, row: Row, reader: "_Reader") -> None:
    """Check that all passages together, and nothing less, give the answer; the cheapest checks come first."""
    if not await reader.finds_answer(row.passages):
        raise RejectedRow("answer_not_found_again", f"{written.question!r}: {reader.last!r}, not {written.answer!r}")
    if await reader.finds_answer(()):
        raise RejectedRow("answered_without_passages", f"{written.question!r}: {reader.last!r}")
    for passage in row.passages if len(row.passages) > 1 else ():
        if await reader.finds_answer((passage,)):
            raise RejectedRow("answered_from_one_passage", f"{written.question!r}: {reader.last!r} from {passage.id} alone")


@dataclass
class _Reader:
    """The teacher as it answers a written question; `last` is its last reply."""

    teacher: Teacher
    written: Written
    min_f1: float
    asked: RequestLog
    last: str = ""

    async def finds_answer(self, passages: Sequence[Passage]) -> bool:
        """Whether the teacher gives the written answer from these passages, or from its own knowledge if there are none."""
        if passages:
            prompt = render_prompt("teacher_question_answer", question=self.written.question, passages=passages)
        else:
            prompt = render_prompt("teacher_question_closed_book", question=self.written.question)
        self.last = (await self.teacher.ask(prompt, Answer, self.asked)).answer
        said, answer = (f" {normalize_answer(text)} " for text in (self.last, self.written.answer))
        return answer in said or token_f1(said, [answer]) >= self.min_f1


LABEL_TASK = LabelTask(label, Options, needs, rows, write_inputs)
