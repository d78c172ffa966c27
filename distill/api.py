"""Labelling in the public Python API: `refinery.label(questions, task=..., teacher=...)`."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distill.output.rows import rejections
from distill.recipe import DistillRecipe
from refinery.contract.records import Question, Record, write_records
from refinery.questions.base import as_questions
from refinery.runtime.background_loop import await_in_background, run_in_background
from refinery.runtime.fingerprint import text_fingerprint
from refinery.runtime.recipe import build_recipe, changed_values

_WHERE = "label"  # what opens messages about its arguments


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels, in the order of their questions, of which one may have several or none.

    `rejected` says by question id why one got none, and `metrics` counts rows, labels, calls, tokens and cost as a run's metrics.json does.
    """

    rows: list[Record]
    rejected: dict[str, str]
    metrics: dict[str, Any]


def label(
    questions: str | Path | Sequence[str] | Sequence[Question],
    *,
    task: str,
    teacher: str | Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    resume: bool = False,
    **changes: Any,
) -> Labels:
    """Label questions by a task of distill/tasks (or one of your own, `my_lab.difficulty`), such as `relevance` or `decomposition`.

    `questions` are a file, or texts, or Questions where the task needs their answers or passages. `teacher` is a model's name at OpenAI, or
    an endpoint's values; `changes` are any other key of a distill recipe:

        labels = refinery.label(["Where was Dune's director born?"], task="decomposition", teacher="gpt-4.1-mini")
        print(labels.rows[0].sub_questions, labels.metrics["teacher"]["cost_usd"])

        refinery.label("questions.jsonl", task="relevance", retriever={"passages": "passages.jsonl"}, options={"judge": "list"},
                       teacher={"base_url": "http://localhost:8000/v1", "model": "qwen3"}, output_dir="runs/labels", max_cost_usd=5)

    With an `output_dir` the run stays, as `refinery distill` leaves it: labels to train on, and every reply, so that `resume=True` pays
    only for what is new. Without one nothing is kept but what is returned. Raises RecipeError for a wrong key or a part that the task
    needs, RecordError for the questions, RunDirError for a folder that holds a run already, and LLMError for an endpoint that takes no
    requests, a `max_cost_usd` that is reached, or more rejected rows than `max_failure_share` allows (a fifth).
    """
    return run_in_background(_label(questions, task, teacher, output_dir, resume, changes))


async def alabel(
    questions: str | Path | Sequence[str] | Sequence[Question],
    *,
    task: str,
    teacher: str | Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    resume: bool = False,
    **changes: Any,
) -> Labels:
    """`label`, for a caller on an event loop that must go on meanwhile. Raises what `label` raises.

        labels = await refinery.alabel(["Where was Dune's director born?"], task="decomposition", teacher="gpt-4.1-mini")

    Cancelling it sends no further request.
    """
    return await await_in_background(_label(questions, task, teacher, output_dir, resume, changes))


async def _label(
    questions: str | Path | Sequence[str] | Sequence[Question],
    task: str,
    teacher: str | Mapping[str, Any] | None,
    output_dir: str | Path | None,
    resume: bool,
    changes: Mapping[str, Any],
) -> Labels:
    from distill.run import arun

    rows: list[Record] = []
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
    """The file, beside their labels, of questions given in memory: no other questions have its name."""
    return f"questions_{text_fingerprint(question.model_dump_json() for question in questions)}.jsonl"
