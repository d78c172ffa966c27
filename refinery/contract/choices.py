"""A multiple-choice question as RQ-RAG's students read it, in training and at evaluation."""

from string import ascii_uppercase

from refinery.contract.records import Question


def choice_letters(question: Question) -> list[str]:
    """The letters that an answer may be, A for the first choice."""
    return list(ascii_uppercase[: len(question.choices or [])])


def choice_question(question: Question) -> str:
    """The question with its choices, one a line (RQ-RAG retrieval_lm/utils.py; a missing question mark is added)."""
    asked = question.text if question.text.endswith("?") else f"{question.text}?"
    listed = [f"{letter}: {choice}" for letter, choice in zip(choice_letters(question), question.choices or [], strict=True)]
    return "\n".join([asked, "Please choose from following options:", *listed])
