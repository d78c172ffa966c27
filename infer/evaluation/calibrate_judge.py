"""Choose the probability above which a judge's yes counts, on labels that it was not trained on."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from refinery.contract.records import JudgeLabel, Question
from refinery.errors import PluginError, UnreachedError
from refinery.metrics.classification import accuracy, label_f1
from refinery.tasks.base import Judge, load_task


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The threshold of a decoder's `option`, and its scores on the labels, as fractions from 0 to 1."""

    option: str
    threshold: float
    rows: int
    accuracy: float
    f1: float
    precision: float
    recall: float


def calibrate(recipe: PipelineRecipe, role: str, labels: Path, *, precision: float | None = None) -> Calibrated:
    """The threshold with the best F1 of the positive label; with `precision`, the lowest threshold that reaches this precision.

    The judge is the one that the recipe names: an adapter, a sub-model of any family, a server, or the bare model. Raises RecordError for
    an invalid file, PluginError for a role without a threshold in any decoder, and UnreachedError if no threshold reaches `precision`.
    """
    judge = load_task(role)
    if not isinstance(judge, Judge) or judge.threshold_option is None:
        raise PluginError(f"--role {role}: no decoder has a threshold option for it. Name a judge that has one, such as relevance.")
    rows = judge.read(labels)
    pipeline = Pipeline(recipe)
    pipeline.load()
    positive = [row.label == judge.labels[1].strip() for row in rows]
    return _best(judge.threshold_option, asyncio.run(_probs(pipeline, judge, rows)), positive, precision)


async def _probs(pipeline: Pipeline, judge: Judge[Any], rows: Sequence[JudgeLabel]) -> list[float]:
    """The probability of the positive label for each row."""
    gate = asyncio.Semaphore(pipeline.recipe.questions_in_flight)
    session = pipeline.session(Question(id="", text="(labels)"))

    async def share(row: JudgeLabel) -> float:
        async with gate:
            context = session.context_for(judge.name, session.fit_prompt(judge.name, judge.prompt(row), to_write=1))
            return (await context.label_probs(judge.labels, adapter=session.adapter(judge.name)))[judge.labels[1]]

    try:
        return list(await asyncio.gather(*map(share, rows)))
    finally:
        await pipeline.close()


def _best(option: str, probs: Sequence[float], positive: Sequence[bool], precision: float | None) -> Calibrated:
    found = [_scored(option, threshold, probs, positive) for threshold in _thresholds(probs)]
    if precision is None:
        return max(found, key=lambda one: one.f1)
    if good := [one for one in found if one.precision >= precision]:
        return good[0]
    best = max(found, key=lambda one: one.precision)
    raise UnreachedError(
        f"no threshold reaches a precision of {precision:g} on {best.rows} labels; the best is {best.precision:.3f}, of"
        f" options.{option}={shown(best.threshold)} with recall {best.recall:.3f}. Ask for less, or train the judge further."
    )


def _thresholds(probs: Sequence[float]) -> list[float]:
    """One threshold for each way to split the rows, ascending: 0, one between each two neighboring probabilities, and 1."""
    ordered = sorted({0.0, *probs, 1.0})
    return [0.0, *(_between(low, high) for low, high in pairwise(ordered))]


def _between(low: float, high: float) -> float:
    """The number with the fewest digits in the middle half of the interval: above `low` and at most `high`, even close to 0 or 1."""
    middle, margin = (low + high) / 2, (high - low) / 4
    rounded = (float(f"{middle:.{digits}g}") for digits in range(1, 18))
    return next((value for value in rounded if low < value <= high and abs(value - middle) <= margin), high)


def shown(threshold: float) -> str:
    """All digits that a threshold needs, without an exponent, which YAML would read as text."""
    return f"{Decimal(repr(threshold)).normalize():f}"


def _scored(option: str, threshold: float, probs: Sequence[float], positive: Sequence[bool]) -> Calibrated:
    said = ["yes" if share >= threshold else "no" for share in probs]
    gold = ["yes" if is_positive else "no" for is_positive in positive]
    right = sum(s == g == "yes" for s, g in zip(said, gold, strict=True))
    return Calibrated(
        option,
        threshold,
        len(gold),
        accuracy(said, gold),
        label_f1(said, gold, positive="yes"),
        right / said.count("yes") if "yes" in said else 0.0,
        right / gold.count("yes") if "yes" in gold else 0.0,
    )
