"""Compare the labels of finished runs with annotated questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from distill.recipe import DistillRecipe
from distill.task_grades import Grader, GradingContext, Outcome, is_rejected, labels_of
from distill.writing.rows import rejected_rows
from refinery.contract.records import KnowledgeLabel, Question, Record, iter_records
from refinery.contract.split_name import INPUTS_FILE, is_split
from refinery.errors import RecordError, RunDirError
from refinery.metrics.bootstrap import Measure
from refinery.metrics.graded import Graded, measures
from refinery.questions.base import check_ids
from refinery.reporting.question_groups import ALL, groups_of
from refinery.retrievers.base import Retriever, RetrieverConfig
from refinery.retrievers.search.build import build_retriever
from refinery.runtime.concurrency.background_loop import run_anywhere
from refinery.runtime.recipe import build_recipe, flat_values
from refinery.runtime.run.run_dir import read_metrics, read_run

_NO_LABELS: Sequence[Any] = ()
_Compared = tuple[Graded, bool]  # what the labels of a question are worth, and whether it was rejected


class LabeledRun:
    """A finished distill run: what went in, and the labels or the rejection of each question.

    Raises RunDirError for a folder that is not a finished distill run, and for a task whose labels nothing can be compared with.
    """

    def __init__(self, path: Path) -> None:
        record = read_run(path)
        if record["stage"] != "distill":
            raise RunDirError(f"{path}: is not a distill run, so it has no labels. Name the output_dir of a distill run.")
        self.path, self.name, self.metrics = path, path.resolve().name, read_metrics(path)
        self.recipe = build_recipe(record["recipe"], DistillRecipe, where=str(path / "run.json"))

    @cached_property
    def grader(self) -> Grader:
        """What compares its labels with annotations."""
        grader = self.recipe.label_task.grader
        if grader is None:
            raise RunDirError(f"{self.path}: labels of task '{self.recipe.task}' cannot be compared with annotations. Leave the run out.")
        return grader

    @cached_property
    def inputs(self) -> list[Any]:
        """The questions, or other rows, that were to be labeled, in order."""
        if not (self.path / INPUTS_FILE).exists():
            raise RunDirError(f"{self.path}: has no {INPUTS_FILE}, because an older version made it. Label these questions again.")
        return list(iter_records(self.path / INPUTS_FILE, self.recipe.label_task.row_type))

    @cached_property
    def outcomes(self) -> Mapping[str, Outcome]:
        """The labels of each question, or why it was rejected. A question without either is missing."""
        found: dict[str, list[Record]] = {}
        for label in self._labels():
            found.setdefault(getattr(label, "question_id", "") or getattr(label, "id", ""), []).append(label)
        return found | rejected_rows(self.path)

    def _labels(self) -> Sequence[Record]:
        files = [self.path / f"{split}.jsonl" for split in self.metrics["rows_by_split"] if is_split(split)]
        return [row for file in files for row in iter_records(file, self.grader.record)]

    @property
    def labeled_by(self) -> str:
        """The model that labeled, or the annotations."""
        endpoint = self.recipe.teacher or self.recipe.target_endpoint
        if getattr(self.recipe.task_options(), "by", None) == "annotations":
            return "annotations"
        return endpoint.model if endpoint else self.recipe.target.base if self.recipe.target else "annotations"

    @property
    def spent(self) -> tuple[int, float | None]:
        """Tokens of all prompts and replies that its labels took, and the dollars of all attempts, None where a price is unknown."""
        asked = [values for values in self.metrics.values() if isinstance(values, dict) and "num_prompt_tokens" in values]
        tokens = sum(one["num_prompt_tokens"] + one["num_completion_tokens"] + one.get("num_stored_tokens", 0) for one in asked)
        dollars = [one["cost_usd"] for one in asked]
        return tokens, None if None in dollars else sum(dollars)

    @cached_property
    def settings(self) -> dict[str, str]:
        """Every key of the recipe that has a value, nested ones with dots."""
        return flat_values(self.recipe)


@dataclass(frozen=True, slots=True)
class Quality:
    """One run, compared with one kind of annotation, on all questions or one group of them.

    `questions` counts those that are annotated, and `rejected` those of them that the run rejected. Shares are fractions from 0 to 1.
    Dollars are None where a price is unknown, and everything per correct label is None where no label is correct. A group has no costs,
    because a run records those of all its questions together.
    """

    run: LabeledRun
    group: str
    against: str
    questions: int
    rejected: int
    measures: Mapping[str, Measure]
    tokens_per_row: float | None = None
    dollars_per_row: float | None = None
    tokens_per_correct: float | None = None
    dollars_per_correct: float | None = None


def evaluate_labels(
    runs: Sequence[Path], annotated: Sequence[Question], *, closed_book: Path | None = None, breakdown: bool = False
) -> list[Quality]:
    """The quality of each run, by what its labels are compared with. Without `annotated`, the questions as the runs read them are used.

    `closed_book` is a self-knowledge run in which a model answered the questions. With `breakdown`, the runs on each group of questions
    follow: the dataset, the type, and single or multi-hop. Raises RecordError for a run whose questions are not among the annotated ones,
    or not annotated for its task, and RunDirError for a run that cannot be used.
    """
    check_unique(annotated)
    opened = [LabeledRun(run) for run in runs]
    known = _closed_book(LabeledRun(closed_book)) if closed_book else {}
    found = [quality for run in opened for quality in run_anywhere(_evaluate(run, annotated, known))]
    groups = list(dict.fromkeys(quality.group for quality in found)) if breakdown else [ALL]
    return [quality for group in groups for quality in found if quality.group == group]


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
    compared: dict[tuple[str, str], list[_Compared]] = {}
    several_datasets = len({getattr(question, "dataset", "") for question in questions}) > 1
    for question in questions:
        outcome = outcomes.get(question.id, _NO_LABELS)
        for against, found in (await _graded(run, question, outcome, context)).items():
            for group in _groups(question, several_datasets):
                compared.setdefault((group, against), []).append((found, is_rejected(outcome)))
    if not compared:
        raise RecordError(
            f"{run.path}: none of its {len(questions)} questions is annotated for task '{run.recipe.task}'. Name rows that are."
        )
    return [_quality(run, group, against, found) for (group, against), found in compared.items()]


def _groups(question: Any, several_datasets: bool) -> list[str]:
    """The groups under which a question counts; other rows than questions count under all."""
    return [ALL, *(groups_of(question, several_datasets) if isinstance(question, Question) else ())]


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


def _quality(run: LabeledRun, group: str, against: str, compared: Sequence[_Compared]) -> Quality:
    graded = [one for one, _ in compared]
    costs = _costs(run, graded) if group == ALL else ()
    return Quality(run, group, against, len(graded), sum(rejected for _, rejected in compared), measures(graded), *costs)


def _costs(run: LabeledRun, graded: Sequence[Graded]) -> tuple[float | None, ...]:
    """Tokens and dollars of a row, and of a correct label."""
    tokens, dollars = run.spent
    rows, correct = len(run.inputs), sum(one.correct for one in graded)
    per_correct = len(graded) / rows / correct if correct else None  # of a run's cost, the part of the annotated questions
    return (
        tokens / rows,
        None if dollars is None else dollars / rows,
        None if per_correct is None else tokens * per_correct,
        None if per_correct is None or dollars is None else dollars * per_correct,
    )
