"""Run one labelling task over all questions: each is one coroutine straight through, every one is accounted for.

Rows stream in and out, so that a million of them take no more memory than ten thousand. Nothing of a run is kept but the effect store and
the files: a rerun replays the store and writes the same files again.
"""

import asyncio
import gc
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from distill.batch import BatchTransport
from distill.budget import Budget, BudgetExhausted
from distill.guards import Guards
from distill.output import InOrder, LabelWriter
from distill.recipe import DistillRecipe
from distill.store import EffectStore
from distill.teacher import RejectedRow, Teacher, keep_in
from distill.workbench import Workbench
from refinery import plugins
from refinery.errors import LLMError, RecipeError
from refinery.fingerprint import file_fingerprint
from refinery.hub.dataset_card import dataset_card
from refinery.llms.endpoint import EndpointConfig
from refinery.llms.openai import ChatEndpoint
from refinery.progress import Progress
from refinery.questions.base import check_ids, iter_questions
from refinery.retrievers.base import build_retriever
from refinery.retrievers.supporting import check_supporting
from refinery.run_dir import check_run, locked_run, open_run, read_run, write_json

# A slow question holds back the writing of those behind it, and not their work, until this many times `rows_in_flight` are done.
_HELD_BACK = 16
# Rows that need no waiting give way now and then, so that replies and the progress line get their turn.
_ROWS_PER_TURN = 64
# Objects made, less those freed, between two collections of garbage; Python's own 700 pass within a few rows.
_COLLECT_EVERY = 50_000


def run(recipe: DistillRecipe, *, resume: bool) -> dict[str, Any]:
    """Label every question and write one `<split>.jsonl` (and Parquet) per question split. Returns what `metrics.json` holds.

    Raises UnusableEndpoint, BudgetExhausted, or LLMError when too many rows are rejected. What was paid for stays in the store, and what
    was labelled until then is written, with `stopped.json` in place of `metrics.json`.
    """
    task = load_task(recipe)
    total = count_rows(task, recipe)
    inputs = {str(path): file_fingerprint(path) if path.is_file() else None for path in (*recipe.questions, *_corpus(recipe))}
    # A run begun with another recipe or other rows is gone over: the store pays what is equal.
    finished = check_run(recipe, recipe.output_dir, resume=resume, same_recipe=False)
    if finished is not None and finished["inputs"] == inputs:
        return finished
    with ExitStack() as closing:
        closing.enter_context(locked_run(recipe.output_dir))
        retriever = build_retriever(recipe.retriever) if recipe.retriever else None
        output = open_run(recipe, recipe.output_dir, stage="distill", resume=resume, same_recipe=False)
        store = EffectStore(recipe.store or output / "effects.sqlite")
        closing.callback(store.close)
        guards = Guards(recipe.evaluation_sets, reader=recipe.reader, tokenizer=_tokenizer(recipe), max_length=recipe.max_length)
        writer = LabelWriter(output, guards)
        if hasattr(task, "write_inputs"):
            task.write_inputs(recipe, output.path)
        metrics = asyncio.run(_label(task, recipe, total, store, retriever, writer)) | {"inputs": inputs}
        writer.write_columns()
        output.begin()
        (output / "README.md").write_text(dataset_card(read_run(recipe.output_dir), metrics), encoding="utf-8")
        output.write_metrics(metrics)
        return metrics


def load_task(recipe: DistillRecipe) -> Any:
    """The task's module, once the recipe has every part that it needs."""
    task = plugins.load("distill.tasks", recipe.task)
    needs = (*(() if hasattr(task, "rows") else ("questions",)), *task.needs(recipe.task_options()))
    missing = [need for need in needs if getattr(recipe, need) in (None, []) and not (need == "target" and recipe.target_endpoint)]
    if missing:
        raise RecipeError(f"task '{recipe.task}' needs '{missing[0]}' in the recipe.")
    return task


def iter_rows(task: Any, recipe: DistillRecipe) -> Iterator[Any]:
    """What the task labels, one by one: the recipe's questions, or what the task itself draws from; this shard's part of it."""
    rows = task.rows(recipe) if hasattr(task, "rows") else iter_questions(recipe.questions, reader=recipe.reader)
    rows = islice(rows, recipe.limit)
    number, count = recipe.shard_of
    return (row for row in rows if count == 1 or _hash(row.id) % count == number)


def count_rows(task: Any, recipe: DistillRecipe) -> int:
    """How many rows there are, every one of them read: nothing is paid before the last line is known to be good."""
    import numpy as np

    ids, written = array("Q"), []
    for row in iter_rows(task, recipe):
        ids.append(_hash(row.id))
        if getattr(row, "supporting_hash", None):
            written.append(row)
    check_supporting(written, recipe.retriever)
    hashes = np.frombuffer(ids, dtype=np.uint64) if ids else np.empty(0)
    hashes.sort()  # in place
    repeated = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
    again = next(row.id for row in iter_rows(task, recipe) if _hash(row.id) in repeated) if repeated else None
    check_ids(recipe.questions or [recipe.output_dir], len(ids), again)
    return len(ids)


def build_teacher(config: EndpointConfig, recipe: DistillRecipe, store: EffectStore) -> Teacher:
    """A teacher over the recipe's transport."""
    transport = BatchTransport(config, store, recipe.batch) if recipe.transport == "batch" else ChatEndpoint(config, keep_in(store))
    factor = recipe.batch.price_factor if recipe.transport == "batch" else 1.0
    return Teacher(config, store, transport, Budget(config, recipe.max_cost_usd, factor=factor))


async def _label(task: Any, recipe: DistillRecipe, total: int, store: EffectStore, retriever: Any, writer: LabelWriter) -> dict[str, Any]:
    teacher = build_teacher(recipe.teacher, recipe, store) if recipe.teacher else None
    asked = build_teacher(recipe.target_endpoint, recipe, store) if recipe.target_endpoint else None
    bench = Workbench(recipe, teacher, asked or _build_target(recipe), retriever, store, recipe.task_options())
    teachers = {name: one for name, one in (("teacher", teacher), ("target_endpoint", asked)) if one}
    stopped, started = "interrupted", time.perf_counter()
    try:
        with _rare_collections():
            await _label_all(task, bench, total, writer, list(teachers.values()))
        stopped = _too_many_rejected(recipe, writer)
    except Exception as error:
        stopped = str(error)
        raise
    finally:
        writer.finish()
        for one in teachers.values():
            await one.close()
        metrics = _metrics(writer, teachers) | {"seconds_labelling": round(time.perf_counter() - started, 3)}
        if stopped:
            write_json(writer.output / "stopped.json", {"why": stopped, **metrics})
    if stopped:
        raise LLMError(stopped)
    (writer.output / "stopped.json").unlink(missing_ok=True)
    return metrics


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Few collections of garbage, and none of what was there before. Rows hold each other in no cycles and are freed without them.

    At the usual pace they took 40 % of the wall time and more at 256 calls in flight, on a busy machine.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


async def _label_all(task: Any, bench: Workbench, total: int, writer: LabelWriter, teachers: Sequence[Teacher]) -> None:
    """As many workers as rows may be in flight; each takes a row, labels it, and takes the next."""
    recipe = bench.recipe
    rows = enumerate(iter_rows(task, recipe))
    order = InOrder(writer.write, window=recipe.rows_in_flight * _HELD_BACK)

    over_budget: list[BudgetExhausted] = []

    async def work() -> None:
        for number, row in rows:  # shared: each row goes to one worker
            await order.room(number)
            try:
                order.put(number, row, await task.label(row, bench))
            except RejectedRow as error:
                order.put(number, row, error)
            except BudgetExhausted as error:
                over_budget.append(error)
                order.let_pass()
            if over_budget:  # rows whose requests are out come to their end; no new one begins
                return
            progress.advance()
            if number % _ROWS_PER_TURN == 0:
                await asyncio.sleep(0)

    with Progress(f"distill {recipe.task}", total=total, beside=lambda: _status(writer, teachers, total)) as progress:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(recipe.rows_in_flight, total)):
                    group.create_task(work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            order.flush()
    if over_budget:
        raise over_budget[0]


def _status(writer: LabelWriter, teachers: Sequence[Teacher], total: int) -> str:
    """The line beside the bar: calls, hits, retries, in flight, tokens, cost so far and projected, label balance."""
    parts = [f"rejected={writer.num_rejected}"] if writer.num_rejected else []
    for teacher in teachers:
        tokens = teacher.num_prompt_tokens + teacher.num_completion_tokens
        parts.append(f"calls={teacher.calls} hits={teacher.hits} retries={teacher.transport.retries}")
        parts.append(f"in_flight={teacher.transport.in_flight} tokens={tokens}")
        if (spent := teacher.budget.spent) is not None:
            projected = f" (about ${spent * total / writer.questions:.2f} in all)" if writer.questions else ""
            parts.append(f"${spent:.2f}{projected}")
    labelled = sum(writer.labels.values())
    return " ".join([*parts, *(f"{label}={count / labelled:.0%}" for label, count in sorted(writer.labels.items()))])


def _metrics(writer: LabelWriter, teachers: dict[str, Teacher]) -> dict[str, Any]:
    spent = {name: teacher.summary() for name, teacher in teachers.items()}
    return {**writer.counts(), **spent, "guards": writer.guards.report()}


def _too_many_rejected(recipe: DistillRecipe, writer: LabelWriter) -> str:
    """Why the run fails, or nothing."""
    if writer.num_rejected <= recipe.max_failure_share * writer.questions:
        return ""
    return (
        f"{recipe.output_dir}: {writer.num_rejected} of {writer.questions} rows were rejected, more than max_failure_share "
        f"{recipe.max_failure_share} allows ({_reasons(writer.rejected)}). See failures.jsonl; the rows labelled so far are written."
    )


def _reasons(rejected: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in rejected.most_common())


def _build_target(recipe: DistillRecipe) -> Any:
    from refinery.llms.build import build_llm

    return build_llm(recipe.target) if recipe.target else None


def _tokenizer(recipe: DistillRecipe) -> Any:
    """The student's tokenizer, for the guard of length."""
    if recipe.student is None:
        return None
    from refinery.llms.checkpoint import load_tokenizer

    return load_tokenizer(recipe.student)


def _corpus(recipe: DistillRecipe) -> list[Path]:
    return recipe.retriever.corpus_files if recipe.retriever else []


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
