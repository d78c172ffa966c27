"""A question's sub-questions as text: the list that a decomposer writes, and references to earlier answers."""

import json
import re
from collections.abc import Sequence


def render_sub_questions(sub_questions: Sequence[str]) -> str:
    """A numbered list with one sub-question per line."""
    return "".join(f"\n{number}. {text}" for number, text in enumerate(sub_questions, 1))


def parse_sub_questions(text: str) -> list[str]:
    """The sub-questions of a numbered list or of the released data's `{"query": [...]}`, or an empty list."""
    try:
        listed = json.loads(text)["query"]
        return [item.strip() for item in listed if isinstance(item, str) and item.strip()]
    except (ValueError, TypeError, KeyError):
        return [item.strip() for item in re.findall(r"^\s*\d+[.)]\s*(\S.*)$", _on_lines(text), flags=re.MULTILINE)]


def fill_references(sub_question: str, answers: Sequence[str]) -> str:
    """Replace references in a sub-question by earlier answers: `#1` is the first (MuSiQue's notation)."""
    return re.sub(r"#(\d+)", lambda m: answers[int(m[1]) - 1] if 0 < int(m[1]) <= len(answers) else m[0], sub_question)


def _on_lines(text: str) -> str:
    """Split a list on a single line at its numbers. T5 writes such lists, because its tokenizer has no line breaks."""
    if "\n" in text:
        return text
    number, start = 2, 0
    while found := re.compile(rf" (?={number}[.)] )").search(text, start):
        start = found.start()
        text = f"{text[:start]}\n{text[start + 1 :]}"
        number += 1
    return text
