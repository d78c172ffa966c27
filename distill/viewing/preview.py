"""Preview what a run would ask and cost: the first prompts, as the task renders them, and an estimate from rows that are already paid."""

import asyncio
from itertools import islice
from math import sqrt
from statistics import mean, stdev
from typing import Any

from distill.examples import examples_of
from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.recipe import DistillRecipe
from distill.run import count_rows, iter_rows, load_task
from distill.teacher.budget import Budget
from distill.teacher.replay import CacheMiss, PromptCaptured, PromptRecorder, Replay
from distill.teacher.teacher import RejectedRow
from refinery.prompts.render import turns_of, use_prompts
from refinery.retrievers.base import Retriever
from refinery.retrievers.search.build import build_retriever

_PILOT_ROWS = 200


async def first_prompts(recipe: DistillRecipe, count: int) -> list[str]:
    """The first prompt of each of the first `count` rows; for a task without a model, the rows that it would write."""
    with use_prompts(recipe.own_prompts()):
        return await _first_prompts(recipe, count)


async def _first_prompts(recipe: DistillRecipe, count: int) -> list[str]:
    task = load_task(recipe)
    listener: Any = PromptRecorder()
    context = LabelContext(recipe, listener, listener, _retriever(recipe), options=recipe.task_options(), examples=examples_of(recipe))
    shown: list[str] = []
    for row in islice(iter_rows(task, recipe), count):
        try:
            shown.append("\n".join(label.model_dump_json(exclude_none=True) for label in await task.label(row, context)))
        except PromptCaptured as captured:
            shown.append(_as_asked(captured.prompt))
        except RejectedRow as rejected:
            shown.append(f"rejected: {rejected}")
    return shown


def _as_asked(prompt: str) -> str:
    """A prompt after its examples, each turn with who says it; alone if there are none."""
    *before, _ = turns_of(prompt)
    return "\n\n".join([*(f"[{role}] {text}" for role, text in before), f"[user] {prompt}"]) if before else prompt


async def estimate(recipe: DistillRecipe) -> str:
    """Tokens and dollars of the whole run with a 95% interval, from the rows whose replies are stored; or how to get such rows."""
    task = load_task(recipe)
    total = count_rows(task, recipe)
    if recipe.teacher is None:
        return f"{total} rows; no teacher is asked."
    there = recipe.store_plugin.exists(recipe.store_place(recipe.output_dir))
    with use_prompts(recipe.own_prompts()):
        paid = await _paid_rows(task, recipe) if there else []
    if len(paid) < 2:
        return f"{total} rows. No estimate yet: run a pilot with limit=20, and then this command again. Its replies are not paid twice."
    tokens, dollars = zip(*paid, strict=True)
    price, source = Budget(recipe.teacher, None).price, Budget(recipe.teacher, None).source
    cost = f"${_interval(dollars, total, '.4f')} (prices: {source})" if price else "cost unknown (set teacher.price)"
    return f"{total} rows, estimated from {len(paid)} paid rows, 95% interval: {_interval(tokens, total, ',.0f')} tokens, {cost}."


async def _paid_rows(task: LabelTask[Any], recipe: DistillRecipe) -> list[tuple[int, float]]:
    """(tokens, dollars) of each of the first rows whose replies are all in the store."""
    assert recipe.teacher is not None
    store = recipe.open_store(recipe.output_dir)
    paid: list[tuple[int, float]] = []
    examples = examples_of(recipe)
    retriever, teacher = _retriever(recipe), Replay(recipe.teacher, store)
    try:
        for row in islice(iter_rows(task, recipe), _PILOT_ROWS):
            teacher.replayed.clear()
            listener: Any = PromptRecorder()
            try:
                await task.label(row, LabelContext(recipe, teacher, listener, retriever, store, recipe.task_options(), examples))
            except (CacheMiss, PromptCaptured):
                continue
            except RejectedRow:
                pass  # a rejected row is paid for too
            tokens = sum(reply.num_prompt_tokens + reply.num_completion_tokens for _, reply in teacher.replayed)
            paid.append((tokens, sum(teacher.budget.cost(reply, request) or 0.0 for request, reply in teacher.replayed)))
            await asyncio.sleep(0)
    finally:
        store.close()
    return paid


def _interval(values: Any, total: int, form: str) -> str:
    """`low to high` for the sum over `total` rows, estimated from a sample."""
    middle, error = mean(values) * total, 1.96 * stdev(values) / sqrt(len(values)) * total
    return f"{max(0.0, middle - error):{form}} to {middle + error:{form}}"


def _retriever(recipe: DistillRecipe) -> Retriever | None:
    return build_retriever(recipe.retriever) if recipe.retriever else None
