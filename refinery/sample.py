"""A random sample of the questions of each file, which depends on the questions and not on their order.

Each question draws a number by its text and a seed, and the lowest ones are kept. So a file in another order, or another copy of a dataset
with other ids, gives the same questions, and a larger sample contains a smaller one.
"""

import heapq
from collections.abc import Iterable
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.runtime.recipe import Recipe


class SampleKeys(Recipe):
    """The keys of a recipe that choose questions at random."""

    sample: int | None = Field(
        default=None, description="take so many questions of each file, at random without replacement; `limit` then takes the first", ge=1
    )
    sample_seed: int | None = Field(default=None, description="another number draws another sample; 0 where it is left out")

    @field_validator("sample_seed")
    @classmethod
    def _has_a_sample(cls, seed: int | None, info: ValidationInfo) -> int | None:
        if seed is not None and info.data.get("sample") is None:
            raise ValueError("nothing is drawn without `sample`: add it, or leave this out")
        return seed


def sampled(questions: Iterable[Question], keys: SampleKeys, source: object) -> Iterable[Question]:
    """The sampled questions of one file, in their order; all of them without `sample`. Raises RecordError if there are too few."""
    size = keys.sample
    if size is None:
        return questions
    seed, count = str(keys.sample_seed or 0), 0

    def drawn() -> Iterable[tuple[str, str, int, Question]]:
        nonlocal count
        for count, question in enumerate(questions, 1):
            asked = [question.text, *(question.history or ()), *(question.choices or ())]
            yield text_fingerprint([seed, *asked]), question.id, count, question

    kept = heapq.nsmallest(size, drawn(), key=lambda draw: draw[:3])
    if count < size:
        raise RecordError(f"{source}: has {count:,} questions, and `sample` asks for {size:,}. Lower it, or leave it out.")
    return [question for *_, question in sorted(kept, key=lambda draw: draw[2])]


def sample_report(keys: SampleKeys, ids: Iterable[str]) -> dict[str, Any]:
    """The entry about a sample in `metrics.json`: its size per file, its seed and a hash of the drawn ids; empty without one."""
    if keys.sample is None:
        return {}
    return {"sample": {"size": keys.sample, "seed": keys.sample_seed or 0, "ids_hash": text_fingerprint(sorted(ids))}}
