"""The part of the public Python API that labels: `refinery.label(questions, task=..., teacher=...)`."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distill.label_task import LabelTask
from distill.recipe import DistillRecipe
from distill.writing.rows import rejections
from refinery.contract.records import Question, Record, write_records
from refinery.errors import check_argument
from refinery.questions.base import as_questions
from refinery.runtime.concurrency.background_loop import await_in_background, run_in_background
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.runtime.recipe import build_recipe, changed_values

_WHERE = "label"  # the prefix of messages about its arguments


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels, in the order of their questions. A question may have several labels or none.

    `rejected` says, by question id, why a question got no label. `metrics` counts rows, labels, calls, tokens and cost, as a run's
    metrics.json does.
    """

    rows: list[Record]
    rejected: dict[str, str]
    metrics: dict[str, Any]


def label(
    questions: str | Path | Sequence[str] | Sequence[Question],
    *,
    task: str | LabelTask[Any],
    teacher: str | Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    resume: bool = False,
    **changes: Any,
) -> Labels:
    """Label questions with a task from distill/tasks, such as `relevance`, or your own (`my_lab.difficulty`, or its LABEL_TASK itself).

    `questions` is a file, a list of texts, or a list of Questions if the task needs their answers or passages. `teacher` is the name of
    an OpenAI model, or the values of an endpoint; `changes` may set any other key of a distill recipe:

        labels = refinery.label(["Where was Dune's director born?"], task="decomposition", teacher="gpt-4.1-mini")
        print(labels.rows[0].sub_questions, labels.metrics["teacher"]["cost_usd"])

        refinery.label("questions.jsonl", task="relevance", retriever={"passages": "passages.jsonl"}, options={"judge": "list"},
                       teacher={"base_url": "http://localhost:8000/v1", "model": "qwen3"}, output_dir="runs/labels", max_cost_usd=5)

    With an `output_dir` the run is stored as `refinery distill` would store it: labels to train on, and every reply, so that
    `resume=True` pays only for new requests. Without one, only the returned values remain. Raises RecipeError for a wrong key or a
    missing part that the task needs, RecordError for invalid questions, RunDirError for a folder that already contains a run, and
    LLMError if the endpoint does not accept requests, `max_cost_usd` is reached, or more rows are rejected than `max_failure_share`
    allows (20% by default).
    """
    return run_in_background(_label(questions, task, teacher, output_dir, resume, changes))


async def alabel(
    questions: str | Path | Sequence[str] | Sequence[Question],
    *,
    task: str | LabelTask[Any],
    teacher: str | Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    resume: bool = False,
    **changes: Any,
) -> Labels:
    """Label without blocking the caller's event loop. Raises the same errors as `label`.

        labels = await refinery.alabel(["Where was Dune's director born?"], task="decomposition", teacher="gpt-4.1-mini")

    Canceling it sends no further requests.
    """
    return await await_in_background(_label(questions, task, teacher, output_dir, resume, changes))


async def _label(
    questions: str | Path | Sequence[str] | Sequence[Question],
    task: str | LabelTask[Any],
    teacher: str | Mapping[str, Any] | None,
    output_dir: str | Path | None,
    resume: bool,
    changes: Mapping[str, Any],
) -> Labels:
    from distill.run import arun

    rows: list[Record] = []
    check_argument("output_dir", output_dir, str | Path | None, "a path, or nothing")
    with _folder(output_dir) as folder:
        asked = [] if isinstance(questions, str | Path) else as_questions(questions)
        file = Path(questions) if isinstance(questions, str | Path) else folder / _name_of(asked)
        endpoint = {"model": teacher} if isinstance(teacher, str) else teacher
        values = {"task": task, "questions": [file], "output_dir": folder, "teacher": endpoint}
        recipe = build_recipe(changed_values(values, changes, where=_WHERE), DistillRecipe, where=_WHERE)
        recipe.check(_WHERE)
        if asked:
            folder.mkdir(parents=True, exist_ok=True)
            write_records(file, asked)
        metrics = await arun(recipe, resume=resume, take=rows.append)
        return Labels(rows, rejections(folder), metrics)


@contextmanager
def _folder(output_dir: str | Path | None) -> Generator[Path]:
    if output_dir is not None:
        yield Path(output_dir)
        return
    with TemporaryDirectory(prefix="refinery-label-") as temporary:
        yield Path(temporary)


def _name_of(questions: Sequence[Question]) -> str:
    """The name of the file, next to the labels, for questions given in memory; it is unique to these questions."""
    return f"questions_{text_fingerprint(question.model_dump_json() for question in questions)}.jsonl"
