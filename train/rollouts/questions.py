"""The questions that a run asks: read, checked before anything is sampled, and put in the order in which the steps ask them."""

import random
from collections.abc import Sequence
from pathlib import Path

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.metrics.registry import find_metric
from refinery.questions.base import check_ids, read_questions
from refinery.repeated_questions import AskedQuestions
from train.settings import TrainSettings


def read_file(path: Path) -> list[Question]:
    """The questions of a file. Raises RecordError."""
    return read_questions([path])


def check_questions(questions: Sequence[Question], recipe: TrainSettings) -> None:
    """Raise RecordError for questions that cannot be rewarded, and for training questions that are also evaluated."""
    held_out = [question for path in recipe.validation for question in read_file(path)]
    for some, paths in ((questions, recipe.data), (held_out, recipe.validation)):
        _check_answers(some, paths, recipe.grpo.metric)
    _check_overlap(questions, held_out, recipe)


def _check_answers(questions: Sequence[Question], paths: Sequence[Path], metric: str) -> None:
    ids = [question.id for question in questions]
    if questions:
        check_ids(paths, len(ids), next((one for one in ids if ids.count(one) > 1), None) if len(set(ids)) < len(ids) else None)
    golds = find_metric(metric).golds
    without = [question.id for question in questions if golds(question) is None]
    if without:
        raise RecordError(
            f"{paths[0]}: {len(without):,} of {len(questions):,} questions have no answer that {metric} could score, the first is "
            f"'{without[0]}'. Leave them out, or set grpo.metric to one that applies to them."
        )


def _check_overlap(questions: Sequence[Question], held_out: Sequence[Question], recipe: TrainSettings) -> None:
    asked = AskedQuestions[str]()
    for question in questions:
        asked.add(question.text, question.id)
    pairs = [(question.id, asked.same(question.text) or asked.nearly_the_same(question.text)) for question in held_out]
    shared = [(theirs, ours) for theirs, ours in pairs if ours is not None]
    if shared:
        theirs, ours = shared[0]
        raise RecordError(
            f"{recipe.validation[0]}: {len(shared):,} of {len(held_out):,} validation questions are also trained on, the first is "
            f"'{theirs}', which is '{ours}' in data. Take them out of one of the two (refinery split keeps repeated questions together)."
        )


def asked_in_order(questions: Sequence[Question], count: int, seed: int) -> list[str]:
    """The ids of the `count` questions that a run asks one after the other: each once in a random order, then in another one."""
    order: list[str] = []
    while len(order) < count:
        ids = [question.id for question in questions]
        random.Random(f"{seed}:{len(order)}").shuffle(ids)
        order += ids
    return order[:count]
