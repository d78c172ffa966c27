"""The rows of a labeling run: which they are, how many, and which of them repeat others."""

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from distill.inputs.repeats import EvaluationOverlap, repeated_questions
from distill.label_task import LabelTask
from distill.recipe import DistillRecipe
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import check_ids, iter_questions, read_questions
from refinery.runtime.files.duplicate_ids import repeated
from refinery.runtime.files.fingerprint import id_number


def load_task(recipe: DistillRecipe) -> LabelTask[Any]:
    """The recipe's task. Raises PluginError for an unknown one, and RecipeError if the recipe lacks a part that it needs."""
    task = recipe.label_task
    needs = (*(() if task.rows else ("questions",)), *task.needs(recipe.task_options()))
    missing = [need for need in needs if getattr(recipe, need) in (None, []) and not (need == "target" and recipe.target_endpoint)]
    if missing:
        raise recipe.fault(missing[0], f"is missing, and task '{recipe.task}' needs it.")
    return task


def iter_rows(task: LabelTask[Any], recipe: DistillRecipe) -> Iterator[Any]:
    """The rows of this shard, one by one: the recipe's questions, or the rows that the task itself provides."""
    rows = _rows_of_all_shards(task, recipe)
    return rows if recipe.shard is None else (row for row in rows if recipe.has_row(row.id))


def _rows_of_all_shards(task: LabelTask[Any], recipe: DistillRecipe) -> Iterator[Any]:
    rows = task.rows(recipe) if task.rows else iter_questions(recipe.questions, reader=recipe.reader, sample=recipe)
    return islice(rows, recipe.limit)


def evaluation_overlap(recipe: DistillRecipe) -> EvaluationOverlap | None:
    """The evaluation sets' questions, if those that repeat them are rejected."""
    if recipe.repeats == "kept":
        return None
    evaluation = read_questions(recipe.evaluation_sets, reader=recipe.reader)
    return EvaluationOverlap(evaluation, similar=recipe.repeats == "similar_rejected")


def repeated_rows(task: LabelTask[Any], recipe: DistillRecipe, overlap: EvaluationOverlap | None) -> dict[str, RejectedRow]:
    """Why rows repeat others, by id. Every shard compares the rows of all shards; a task that writes questions compares them itself."""
    if overlap is None or task.rows:
        return {}
    return repeated_questions(lambda: _rows_of_all_shards(task, recipe), overlap, similar=recipe.repeats == "similar_rejected")


def count_rows(task: LabelTask[Any], recipe: DistillRecipe) -> int:
    """The number of rows. It reads every row, so that nothing is paid before the last line is known to be valid."""
    ids, written, any_answers = array("Q"), [], not task.needs_answers(recipe.task_options())
    for row in iter_rows(task, recipe):
        ids.append(id_number(row.id))
        any_answers = any_answers or bool(row.answers)
        if getattr(row, "supporting_hash", None):
            written.append(row)
    _check_supporting(written, recipe)
    twice = repeated(ids)
    again = next(row.id for row in iter_rows(task, recipe) if id_number(row.id) in twice) if twice else None
    check_ids(recipe.questions or [recipe.output_dir], len(ids), again)
    if not any_answers:
        raise RecordError(f"{recipe.questions[0]}: no question has gold answers, and task '{recipe.task}' needs them. Add `answers`.")
    return len(ids)


def _check_supporting(written: Sequence[Question], recipe: DistillRecipe) -> None:
    """Check that the retriever searches what the questions were written from."""
    if not written:
        return
    from refinery.indexes.supporting_passages import check_supporting

    check_supporting(written, recipe.retriever)
