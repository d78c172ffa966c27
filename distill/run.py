"""Run one labeling task over all questions. Each question is one coroutine, and every one is accounted for.

Rows stream in and out, so a million of them take no more memory than ten thousand. A run's only state is the reply store and its files: a
rerun replays the store and writes the same files again.
"""

import errno
import logging
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from distill.examples import Examples, examples_of
from distill.guards import Guards
from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.labeling import TooManyRejected, label_all
from distill.moved_endpoints import warn_of_moved_endpoints
from distill.output.rows import LabelWriter, lasting_failures
from distill.recipe import DistillRecipe
from distill.repeated_numbers import repeated
from distill.steps.repeats import EvaluationOverlap, repeated_questions
from distill.stores.base import ReplyStore
from distill.teacher.batch import BatchTransport
from distill.teacher.budget import Budget, Spending
from distill.teacher.teacher import RejectedRow, Teacher, persist_in
from refinery.contract.records import Record
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import RecordError, RunDirError
from refinery.hub.dataset_card import dataset_card
from refinery.llms.base import LLM
from refinery.llms.served.client import EndpointClient
from refinery.llms.served.endpoint import EndpointConfig
from refinery.prompts.own import OwnPrompts, prompts_of
from refinery.prompts.render import use_prompts
from refinery.questions.base import check_ids, iter_questions, read_questions
from refinery.retrievers.base import Retriever
from refinery.retrievers.search.build import build_retriever
from refinery.runtime.background_loop import run_in_background
from refinery.runtime.fingerprint import file_fingerprint, id_number
from refinery.runtime.rare_collections import rare_collections
from refinery.runtime.run_dir import (
    Fingerprints,
    changed_fingerprints,
    check_run,
    locked_run,
    open_run,
    read_run,
    write_json,
)
from refinery.supporting import check_supporting

# A full disk, a quota, a limit on file sizes, a folder that cannot be written to.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
_INTERRUPTED = "interrupted"
_log = logging.getLogger(__name__)


def run(recipe: DistillRecipe, *, resume: bool) -> dict[str, Any]:
    """Call `arun` from synchronous code. An interrupt ends it as soon as the open requests are abandoned."""
    return run_in_background(arun(recipe, resume=resume))


async def arun(recipe: DistillRecipe, *, resume: bool, take: Callable[[Record], None] | None = None) -> dict[str, Any]:
    """Label every question and write one `<split>.jsonl` (and Parquet) per question split. Returns the content of `metrics.json`.

    In a finished run, rows that were rejected for a temporary reason are asked again. Raises UnusableEndpoint, BudgetExhausted or
    TooManyRejected; everything paid for remains in the store, and the rows labeled so far are written, with `stopped.json` instead of
    `metrics.json`. `take` is called with each row as it is written; with it, a finished run is replayed for its rows.
    """
    prompts = recipe.own_prompts()
    with use_prompts(prompts):
        return await _arun(recipe, prompts, resume=resume, take=take)


async def _arun(
    recipe: DistillRecipe, prompts: OwnPrompts | None, *, resume: bool, take: Callable[[Record], None] | None
) -> dict[str, Any]:
    task = load_task(recipe)
    total = count_rows(task, recipe)
    evaluation = recipe.evaluation_sets if recipe.repeats != "kept" else []
    files = (*_files(recipe), *task.inputs(recipe.task_options()), *evaluation)
    inputs = {str(path): file_fingerprint(path) if path.is_file() else None for path in files}
    known = prompts.fingerprints() if prompts else {}
    examples = examples_of(recipe)
    # A run that was started with a different recipe or different rows is redone; equal requests are answered from the store.
    finished = check_run(recipe, recipe.output_dir, resume=resume, same_recipe=False)
    _check_prompts(recipe, known)
    if finished is not None and finished["inputs"] != inputs:
        finished = None
    lasting = lasting_failures(recipe.output_dir) if finished else {}
    if finished and take is None and len(lasting) == finished["questions_rejected"]:
        return finished
    if task.review:
        lasting = {id: rejected for id, rejected in lasting.items() if rejected.reason not in task.review().reasons}
    with ExitStack() as closing:
        closing.enter_context(_written_in_one_line(recipe.output_dir))
        closing.enter_context(locked_run(recipe.output_dir))
        retriever = build_retriever(recipe.retriever) if recipe.retriever else None
        warn_of_moved_endpoints(recipe)
        # The files of a finished run remain until the rows that are asked again are done too.
        output = open_run(recipe, recipe.output_dir, stage="distill", resume=resume, same_recipe=finished is not None, fingerprints=known)
        if prompts:
            prompts.keep(output.path)
            closing.callback(lambda: None if output.begun else prompts.drop(output.path))
        if examples:
            examples.keep(output.path)
            closing.callback(lambda: None if output.begun else examples.drop(output.path))
        store = recipe.open_store(output.path)
        closing.callback(store.close)
        guards = Guards(
            recipe.evaluation_sets, reader=recipe.reader, tokenizer=_tokenizer(recipe), max_length=recipe.max_length, learned=task.learned
        )
        stream = None
        if recipe.hub:  # its client is imported only where it is used
            from distill.output.hub_stream import open_stream

            stream = open_stream(recipe, output, total, inputs)
        writer = LabelWriter(output, guards, replaces_finished=finished is not None, take=take, stream=stream)
        task.write_inputs(recipe, output.path)
        overlap = None
        if recipe.repeats != "kept":
            overlap = EvaluationOverlap(read_questions(evaluation, reader=recipe.reader), similar=recipe.repeats == "similar_rejected")
            lasting |= _repeated(task, recipe, overlap)
        metrics = await _label(task, recipe, total, store, retriever, writer, lasting, overlap, examples)
        metrics |= {"inputs": inputs, "retriever": retriever and retriever.revision}
        writer.write_columns()
        output.begin()
        (output / "README.md").write_text(dataset_card(read_run(recipe.output_dir), metrics), encoding="utf-8")
        output.write_metrics(metrics)
        for warning in (*writer.warnings(), *(f"{recipe.output_dir}: {warning}" for warning in guards.warnings())):
            _log.warning("%s", warning)
        if stream:
            _log.info("%s: %d rows", stream.finish(metrics), metrics["rows"])
        return metrics


@contextmanager
def _written_in_one_line(output_dir: Path) -> Iterator[None]:
    """Report a full disk, or a folder that cannot be written to, in one line, because the user can fix it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        where, why = error.filename or output_dir, error.strerror
        raise RunDirError(f"{where}: cannot be written ({why}). Free space or choose another output_dir. No paid reply is lost.") from None


def _check_prompts(recipe: DistillRecipe, now: Fingerprints) -> None:
    """Refuse to resume a run from the same folder of prompts with other texts in it, whatever else in the recipe has changed."""
    if not (kept := prompts_of(recipe.output_dir)).is_dir() or not (recipe.output_dir / "run.json").exists():
        return
    earlier = read_run(recipe.output_dir)
    same_folder = earlier["recipe"].get("prompts") == str(recipe.prompts)
    if same_folder and (changed := changed_fingerprints(earlier.get("fingerprints", {}), now)):
        raise RunDirError(
            f"{recipe.output_dir}: was started with other prompts (changed: {', '.join(changed)}). Restore them, name another folder in "
            f"`prompts`, or remove {kept} to label everything with the new ones."
        )


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
    number, count = recipe.shard_of
    return (row for row in _rows_of_all_shards(task, recipe) if count == 1 or id_number(row.id) % count == number)


def _rows_of_all_shards(task: LabelTask[Any], recipe: DistillRecipe) -> Iterator[Any]:
    rows = task.rows(recipe) if task.rows else iter_questions(recipe.questions, reader=recipe.reader)
    return islice(rows, recipe.limit)


def _repeated(task: LabelTask[Any], recipe: DistillRecipe, overlap: EvaluationOverlap) -> dict[str, RejectedRow]:
    """Why rows repeat others, by id. Every shard compares the rows of all shards; a task that writes questions compares them itself."""
    if task.rows:
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
    check_supporting(written, recipe.retriever)
    twice = repeated(ids)
    again = next(row.id for row in iter_rows(task, recipe) if id_number(row.id) in twice) if twice else None
    check_ids(recipe.questions or [recipe.output_dir], len(ids), again)
    if not any_answers:
        raise RecordError(f"{recipe.questions[0]}: no question has gold answers, and task '{recipe.task}' needs them. Add `answers`.")
    return len(ids)


def build_teacher(config: EndpointConfig, recipe: DistillRecipe, store: ReplyStore, spending: Spending, role: str) -> Teacher:
    """A teacher over the recipe's transport; `role` is its key in `recipe.endpoints`."""
    if recipe.transport == "live":
        budget = Budget(config, recipe.max_cost_usd, spending=spending, endpoint=role)
        client = EndpointClient(config, persist_in(store, budget.enter), budget.admit)
        return Teacher(config, store, client, budget, **recipe.teacher_options(role))
    # Any request of a job may be a straggler; jobs that were already sent are collected by the next attempt.
    factor = recipe.batch.price_factor if recipe.batch.stragglers == "batch" else max(1.0, recipe.batch.price_factor)
    budget = Budget(config, recipe.max_cost_usd, factor=factor, spending=spending, endpoint=role, lost_if_killed=0)
    return Teacher(config, store, BatchTransport(config, store, recipe.batch, budget.enter), budget)


async def _label(
    task: LabelTask[Any],
    recipe: DistillRecipe,
    total: int,
    store: ReplyStore,
    retriever: Retriever | None,
    writer: LabelWriter,
    lasting: dict[str, RejectedRow],
    overlap: EvaluationOverlap | None,
    examples: Examples | None,
) -> dict[str, Any]:
    # A store inside a run's folder holds only that run's costs, even if it is moved; a shared store keys costs by the run's folder.
    spending = Spending(store, str(recipe.output_dir.resolve()) if recipe.store else "")
    teachers = {role: build_teacher(config, recipe, store, spending, role) for role, config in recipe.endpoints.items()}
    context = LabelContext.of(recipe, teachers, _build_target(recipe), retriever, store, examples)
    stopped, started, explains = _INTERRUPTED, time.perf_counter(), False
    try:
        for split in task.splits(recipe):
            writer.open_split(split)
        with rare_collections():
            await label_all(iter_rows(task, recipe), total, task, context, writer, list(teachers.values()), lasting, overlap)
        stopped = ""
    except Exception as error:
        stopped, explains = str(error), isinstance(error, TooManyRejected)  # which refers to failures.jsonl
        raise
    finally:
        for one in teachers.values():
            await one.close()
        keeps = not stopped or explains or writer.labeled or any(one.models or one.hits for one in teachers.values())
        writer.finish(whole=not stopped) if keeps else writer.discard()
        if writer.stream and stopped != _INTERRUPTED:
            writer.stream.stop()
        metrics = _metrics(writer, teachers) | context.tally.report() | {"seconds_labelling": round(time.perf_counter() - started, 3)}
        if stopped and keeps:
            write_json(writer.output / "stopped.json", {"why": stopped, **metrics})
    (writer.output / "stopped.json").unlink(missing_ok=True)
    return metrics


def _metrics(writer: LabelWriter, teachers: dict[str, Teacher]) -> dict[str, Any]:
    spent = {name: teacher.summary() for name, teacher in teachers.items()}
    return {**writer.counts(), **spent, "guards": writer.guards.report()}


def _build_target(recipe: DistillRecipe) -> LLM | None:
    from refinery.llms.build import build_llm

    return build_llm(recipe.target) if recipe.target else None


def _tokenizer(recipe: DistillRecipe) -> Tokenizer | None:
    """The student's tokenizer, for the guard against long rows."""
    if recipe.student is None:
        return None
    from refinery.llms.weights.checkpoint import load_tokenizer

    return load_tokenizer(recipe.student)


def _files(recipe: DistillRecipe) -> list[Path]:
    """The files that the rows and their labels depend on."""
    corpus = recipe.retriever.corpus_files if recipe.retriever else []
    return [*recipe.questions, *corpus, *([recipe.examples.rows] if recipe.examples else [])]
