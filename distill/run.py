"""Run one labelling task over all questions: one coroutine a row, every row accounted for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from distill.bench import Bench
from distill.recipe import DistillRecipe
from distill.teacher import RejectedRow, Teacher
from refinery import plugins
from refinery.errors import LLMError, RecipeError
from refinery.progress import Progress
from refinery.questions.base import read_questions
from refinery.records import Question, Record, write_records
from refinery.retrievers.base import build_retriever
from refinery.run_dir import check_run, open_run

Label = Callable[[Question, Bench], Coroutine[Any, Any, Sequence[Record]]]


def run(recipe: DistillRecipe, *, resume: bool) -> dict[str, Any]:
    """Label every question and write one `<split>.jsonl` per question split. Returns what `metrics.json` holds.

    Raises LLMError when the endpoint is unusable or too many rows are rejected; what was paid for stays in the reply store.
    """
    task = load_task(recipe)
    questions = read_questions(recipe.questions, reader=recipe.reader, limit=recipe.limit)
    check_run(recipe, recipe.output_dir, resume=resume)
    target, retriever = _build_target(recipe), build_retriever(recipe.retriever) if recipe.retriever else None
    output = open_run(recipe, recipe.output_dir, stage="distill", resume=resume)
    teacher = Teacher(recipe.teacher, output / "replies.sqlite") if recipe.teacher else None
    labelled, failures, metrics = asyncio.run(_label_all(task, questions, Bench(recipe, teacher, target, retriever)))
    by_split: dict[str, list[Record]] = {}
    for question, rows in zip(questions, labelled, strict=True):
        by_split.setdefault(question.split or "train", []).extend(rows)
    for split, rows in by_split.items():
        write_records(output / f"{split}.jsonl", rows)
    output.write_failures(failures)
    metrics |= _counts(questions, labelled, failures)
    if len(failures) > recipe.max_failure_share * len(questions):
        raise LLMError(
            f"{recipe.output_dir}: {len(failures)} of {len(questions)} rows were rejected, more than max_failure_share "
            f"{recipe.max_failure_share} allows ({_reasons(failures)}). See failures.jsonl; the rows labelled so far are written."
        )
    output.write_metrics(metrics)
    return metrics


def load_task(recipe: DistillRecipe) -> Any:
    """The task's module, once the recipe has every part that it needs."""
    task = plugins.load("distill.tasks", recipe.task)
    missing = [need for need in task.NEEDS if getattr(recipe, need) is None]
    if missing:
        raise RecipeError(f"task '{recipe.task}' needs '{missing[0]}' in the recipe.")
    return task


async def _label_all(
    task: Any, questions: Sequence[Question], bench: Bench
) -> tuple[list[Sequence[Record]], list[dict[str, Any]], dict[str, Any]]:
    failures: list[dict[str, Any]] = []
    gate = asyncio.Semaphore(bench.recipe.rows_in_flight)
    with Progress(f"distill {bench.recipe.task}", total=len(questions)) as progress:

        async def label_row(question: Question) -> Sequence[Record]:
            async with gate:
                try:
                    return await task.label(question, bench)
                except RejectedRow as error:
                    failures.append({"question_id": question.id, "reason": error.reason, "detail": str(error)})
                    return []
                finally:
                    teacher = bench.teacher
                    progress.advance(calls=teacher.calls, hits=teacher.hits, retries=teacher.retries) if teacher else progress.advance()

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(label_row(question)) for question in questions]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            if bench.teacher:
                await bench.teacher.close()
    spent = (
        {"calls": bench.teacher.calls, "replies_from_store": bench.teacher.hits, "retries": bench.teacher.retries} if bench.teacher else {}
    )
    return [task.result() for task in tasks], failures, spent


def _build_target(recipe: DistillRecipe) -> Any:
    from refinery.llms.build import build_llm

    return build_llm(recipe.target) if recipe.target else None


def _counts(questions: Sequence[Question], labelled: Sequence[Sequence[Record]], failures: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [row for rows in labelled for row in rows]
    balance = Counter(str(label) for row in rows if (label := getattr(row, "label", None)) is not None)
    return {
        "questions": len(questions),
        "questions_labelled": sum(bool(rows) for rows in labelled),
        "questions_rejected": len(failures),
        "rejected_by_reason": dict(Counter(failure["reason"] for failure in failures)),
        "rows": len(rows),
        "labels": dict(balance),
    }


def _reasons(failures: list[dict[str, Any]]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in Counter(failure["reason"] for failure in failures).most_common())
