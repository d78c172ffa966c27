"""A multiple-choice question as RQ-RAG's students read it, in training and in evaluation."""

from string import ascii_uppercase

from refinery.contract.records import Question
from refinery.text import OwnLines, without_breaks


def choice_letters(question: Question) -> list[str]:
    """The letters of the choices, with A for the first."""
    return list(ascii_uppercase[: len(question.choices or [])])


def choice_question(question: Question) -> OwnLines:
    """The question with its choices, one per line (RQ-RAG retrieval_lm/utils.py). A missing question mark is added."""
    asked = question.text if question.text.endswith("?") else f"{question.text}?"
    listed = [f"{letter}: {choice}" for letter, choice in zip(choice_letters(question), question.choices or [], strict=True)]
    return OwnLines("\n".join(map(without_breaks, [asked, "Please choose from following options:", *listed])))
