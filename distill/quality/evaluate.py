"""Compare the labels of finished runs with annotated questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.graded import GradingContext, is_rejected, labels_of
from distill.quality.labeled_run import LabeledRun
from refinery.contract.records import KnowledgeLabel, Question
from refinery.errors import RecordError, RunDirError
from refinery.metrics.bootstrap import Interval
from refinery.metrics.graded import Graded, measures
from refinery.questions.base import check_ids
from refinery.retrievers.base import Retriever, RetrieverConfig
from refinery.retrievers.search.build import build_retriever
from refinery.runtime.background_loop import run_anywhere

_NO_LABELS: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Quality:
    """One run, compared with one kind of annotation.

    `questions` counts those that are annotated, and `rejected` those of them that the run rejected. Shares are fractions from 0 to 1.
    Dollars are None where a price is unknown, and everything per correct label is None where no label is correct.
    """

    run: LabeledRun
    against: str
    questions: int
    rejected: int
    measures: Mapping[str, Interval]
    tokens_per_row: float
    dollars_per_row: float | None
    tokens_per_correct: float | None
    dollars_per_correct: float | None


def evaluate_labels(runs: Sequence[Path], annotated: Sequence[Question], *, closed_book: Path | None = None) -> list[Quality]:
    """The quality of each run, by what its labels are compared with. Without `annotated`, the questions as the runs read them are used.

    `closed_book` is a self-knowledge run in which a model answered the questions. Raises RecordError for a run whose questions are not
    among the annotated ones, or not annotated for its task, and RunDirError for a run that cannot be used.
    """
    check_unique(annotated)
    opened = [LabeledRun(run) for run in runs]
    known = _closed_book(LabeledRun(closed_book)) if closed_book else {}
    return [quality for run in opened for quality in run_anywhere(_evaluate(run, annotated, known))]


def check_unique(questions: Sequence[Question]) -> None:
    """Raise RecordError for annotations that give an id twice."""
    seen: set[str] = set()
    repeated = next((question.id for question in questions if question.id in seen or seen.add(question.id)), None)
    if questions:
        check_ids([Path("--against")], len(questions), repeated)


async def _evaluate(run: LabeledRun, annotated: Sequence[Question], closed_book: Mapping[str, KnowledgeLabel]) -> list[Quality]:
    grader, outcomes = run.grader, run.outcomes
    questions = _annotated(run, annotated) if annotated and grader.annotated else run.inputs
    context = GradingContext(run.recipe.task_options(), closed_book, _retriever(run))
    graded: dict[str, list[Graded]] = {}
    rejected: dict[str, int] = {}
    for question in questions:
        outcome = outcomes.get(question.id, _NO_LABELS)
        for against, found in (await _graded(run, question, outcome, context)).items():
            graded.setdefault(against, []).append(found)
            rejected[against] = rejected.get(against, 0) + is_rejected(outcome)
    if not graded:
        raise RecordError(
            f"{run.path}: none of its {len(questions)} questions is annotated for task '{run.recipe.task}'. Name rows that are."
        )
    return [_quality(run, against, found, rejected[against]) for against, found in graded.items()]


async def _graded(run: LabeledRun, question: Any, outcome: Any, context: GradingContext) -> Mapping[str, Graded]:
    try:
        return await run.grader.grade(question, outcome, context)
    except RecordError as error:
        raise RecordError(f"{run.path}: {error}") from None


def _annotated(run: LabeledRun, annotated: Sequence[Question]) -> list[Question]:
    """The annotations of the run's questions, in order. Raises RecordError unless each is there with the same text."""
    by_id = {question.id: question for question in annotated}
    missing = [row.id for row in run.inputs if row.id not in by_id]
    if missing:
        raise RecordError(
            f"{run.path}: {len(missing)} of its {len(run.inputs)} questions are not in the annotated rows, such as '{missing[0]}'. "
            "Name the files that they came from with --against."
        )
    other = next((row for row in run.inputs if row.text.strip() != by_id[row.id].text.strip()), None)
    if other is not None:
        raise RecordError(f"{run.path}: question '{other.id}' has another text in the annotated rows. Name the files that it came from.")
    return [by_id[row.id] for row in run.inputs]


def _retriever(run: LabeledRun) -> Retriever:
    """A search in each question's own passages, or, for questions that were written about passages, the run's own search."""
    if run.grader.annotated:
        return build_retriever(RetrieverConfig(name="candidates"))
    written = run.path / "passages.jsonl"
    return build_retriever(run.recipe.retriever or RetrieverConfig(name="bm25", passages=written))


def _closed_book(run: LabeledRun) -> dict[str, KnowledgeLabel]:
    """The labels that hold a model's closed-book answers. Raises RunDirError for a run without such labels."""
    outcomes = run.outcomes if run.recipe.task == "self_knowledge" else {}
    found = {question_id: label for question_id, outcome in outcomes.items() for label in labels_of(outcome) if label.replies}
    if not found:
        raise RunDirError(f"{run.path}: holds no closed-book answers. Name a self_knowledge run with `by: student`.")
    return found


def _quality(run: LabeledRun, against: str, graded: Sequence[Graded], rejected: int) -> Quality:
    tokens, dollars = run.spent
    rows, correct = len(run.inputs), sum(one.correct for one in graded)
    per_correct = len(graded) / rows / correct if correct else None  # of a run's cost, the part of the annotated questions
    return Quality(
        run,
        against,
        len(graded),
        rejected,
        measures(graded),
        tokens / rows,
        None if dollars is None else dollars / rows,
        None if per_correct is None else tokens * per_correct,
        None if per_correct is None or dollars is None else dollars * per_correct,
    )
