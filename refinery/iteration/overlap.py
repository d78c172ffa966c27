"""Refuse to learn from questions that also occur in an evaluation set, in the same or nearly the same words."""

from collections.abc import Sequence
from pathlib import Path

from refinery.contract.records import Question
from refinery.iteration.recipe import IterateRecipe
from refinery.questions.base import read_questions
from refinery.repeated_questions import AskedQuestions


def check_overlap(recipe: IterateRecipe) -> None:
    """Raise RecipeError if a training question is in `validation` or `test`, or has no answer to learn from."""
    evaluated: AskedQuestions[Question] = AskedQuestions()
    for question in _read(recipe, [*recipe.validation, *recipe.test]):
        evaluated.add(question.text, question)
    training = _read(recipe, recipe.questions)
    if not any(question.answers for question in training):
        raise recipe.fault("questions", "none of them has an answer, so nothing can be found right. Name questions with answers.")
    found = [
        (question, same) for question in training if (same := evaluated.same(question.text) or evaluated.nearly_the_same(question.text))
    ]
    if found:
        question, same = found[0]
        raise recipe.fault(
            "questions",
            f"{len(found):,} of {len(training):,} are asked by validation or test too, the first is {question.id} ({question.text!r}, "
            f"there {same.id}). Take them out: what is evaluated must not be learned.",
        )


def _read(recipe: IterateRecipe, paths: Sequence[Path]) -> list[Question]:
    return list(read_questions(paths, reader=recipe.reader)) if paths else []
