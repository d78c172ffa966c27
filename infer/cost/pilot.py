"""Answer a few questions for real, and forecast from them what all will take: `refinery infer RECIPE --dry-run --pilot N`.

Replies of endpoints are stored where the run will look for them, so they are paid for once.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from infer.cost.payments import Payments
from infer.pipeline import Pipeline
from infer.recipe import InferRecipe
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.prompts.render import use_prompts
from refinery.runtime.concurrency.gather import together
from refinery.runtime.files.fingerprint import short_sha256
from refinery.runtime.run.run_dir import write_json
from refinery.runtime.run.run_lock import locked_run

_FILE = "pilot.json"
_SEED = 633
# What may differ between a pilot and the run that it forecasts.
_FREE = frozenset(
    {"output_dir", "limit", "questions", "metrics", "name", "store", "store_kind", "max_cost_usd", "questions_in_flight", "shard"}
)


class Pilot(BaseModel):
    """What each question of a pilot took. `seconds` are None if stored replies made it faster, `dollars` if a price is unknown."""

    recipe: str
    calls: list[int]
    read: list[int]
    written: list[int]
    failed: int
    seconds: float | None
    dollars: float | None

    @property
    def tokens(self) -> list[int]:
        """Tokens of each question, read and written."""
        return [read + written for read, written in zip(self.read, self.written, strict=True)]


def run_pilot(recipe: InferRecipe, count: int) -> Pilot:
    """Answer `count` questions at random, and write what they took into the run's folder. Raises the same errors as a run."""
    questions = recipe.read()
    sample = random.Random(_SEED).sample(questions, min(count, len(questions)))  # noqa: S311
    pipeline = Pipeline(recipe)
    with use_prompts(pipeline.prompts), locked_run(recipe.output_dir):
        pipeline.load()
        with Payments(recipe, pipeline.endpoints()) as payments:
            started = time.perf_counter()
            predictions = asyncio.run(_answered(pipeline, sample))
            seconds = time.perf_counter() - started
        pilot = _measured(recipe, predictions, payments, seconds)
        write_json(recipe.output_dir / _FILE, pilot.model_dump())
    return pilot


def read_pilot(recipe: InferRecipe) -> Pilot | None:
    """The pilot in the run's folder; None if there is none, or only one of another recipe."""
    try:
        pilot = Pilot.model_validate_json((recipe.output_dir / _FILE).read_bytes())
    except (OSError, ValidationError):
        return None
    return pilot if pilot.recipe == _hash(recipe) else None


async def _answered(pipeline: Pipeline, questions: Sequence[Question]) -> list[Prediction]:
    found: list[Prediction] = []

    async def answer(question: Question) -> None:
        found.append(await pipeline.outcome(question))

    try:
        await together(answer(question) for question in questions)
    finally:
        await pipeline.close()
    return found


def _measured(recipe: InferRecipe, predictions: Sequence[Prediction], payments: Payments, seconds: float) -> Pilot:
    costs = [prediction.cost for prediction in predictions]
    return Pilot(
        recipe=_hash(recipe),
        calls=[cost.calls for cost in costs],
        read=[cost.prefill_tokens for cost in costs],
        written=[cost.decode_tokens for cost in costs],
        failed=sum(prediction.failed is not None for prediction in predictions),
        seconds=None if any(paid.hits for paid in payments.by_role.values()) else seconds,
        dollars=payments.worth,
    )


def _hash(recipe: InferRecipe) -> str:
    values: dict[str, Any] = recipe.model_dump(mode="json", exclude=set(_FREE))
    return short_sha256(json.dumps(values, sort_keys=True).encode())
