"""Prompts parsed back: the file that a prompt was rendered from, its question, and the passages that it shows."""

import re
from dataclasses import dataclass
from typing import Any

from refinery.prompts.render import render_prompt

# Placeholders for the question and for all other values; no text contains them.
_QUESTION, SLOT = "\0", "\1"
_PASSAGE = {"title": SLOT, "text": SLOT}
_PAIRS = [(SLOT, SLOT)]
_FILLED: dict[str, Any] = (
    dict.fromkeys(("question", "query", "hypothesis", "count"), _QUESTION)
    | dict.fromkeys(("relevance", "thinking", "sub_query", "more_relevance", "missing", "premise", "answer", "problems"), SLOT)
    | {"information": [SLOT], "asked": [SLOT], "thoughts": [SLOT]}
    | {"passages": [_PASSAGE], "passage": _PASSAGE, "knowledge": [(SLOT, _PASSAGE)], "more_knowledge": [(SLOT, _PASSAGE)]}
    | {"sub_answers": _PAIRS, "solved": _PAIRS, "steps": [(SLOT, [_PASSAGE])]}
)
# From the first line with a filled-in value to the last one before the question.
_FILLED_LINES = re.compile(rf"[^\n{_QUESTION}]*{SLOT}(?:[^{_QUESTION}]*{SLOT})?[^\n{_QUESTION}]*\n?")
# How prompts show passages, each form with its number (or none), title and text: answers with passages; re-thinking; MIGRES' leaf and
# ALCE; Chain-of-Note and Self-Ask. ReAct's observations are one line.
_SHOWN = re.compile(
    r"""^(?:()Title:\ (.*)\nText:\ (.*)
    |Knowledge\ (\d+):\ \((.*?)\)\ (.*)
    |Passage\ \[?(\d+)\]?:?\ \(Title:\ (.*?)\):?\ (.*)
    |(?:Passage\ (\d+)|Context):\ (.+?):\ (.*))$""",
    re.MULTILINE | re.VERBOSE,
)
_OBSERVATION = re.compile(r"^Observation: (.*)$", re.MULTILINE)
_OBSERVED = re.compile(r"([^.:]+): (.*?\.)(?: (?=[^.:]+: )| ?$)")


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage as a prompt shows it. If the prompt does not number its passages, `number` counts them."""

    number: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class RequestLog:
    """The content of a prompt: the question, and all other values filled in."""

    question: str
    rest: str


class PromptForm:
    """One prompt file with its switches set (`values`), as a pattern that reads the question and the rest back."""

    def __init__(self, name: str, **values: Any) -> None:
        parts = re.split(f"([{_QUESTION}{SLOT}])", _FILLED_LINES.sub(SLOT, render_prompt(name, **_FILLED | values)))
        self._ends = parts[0], parts[-1]
        pattern, question = "", r"(?P<question>[^\n]+)"
        for part in parts:
            if part == _QUESTION:
                pattern, question = pattern + question, "(?P=question)"
            else:
                pattern += "(.*)" if part == SLOT else re.escape(part)
        self._pattern = re.compile(pattern, re.DOTALL)

    def read(self, prompt: str) -> RequestLog | None:
        """The prompt's content, or None if it was not rendered from this file with these switches."""
        before, after = self._ends
        # The ends are checked first, because the pattern is slow to reject a long prompt of another form.
        found = self._pattern.fullmatch(prompt) if prompt.startswith(before) and prompt.endswith(after) else None
        if found is None:
            return None
        rest = (group for number, group in enumerate(found.groups(), 1) if number != self._pattern.groupindex["question"])
        return RequestLog(found["question"].strip(), "".join(rest))


def opening(name: str, examples: str, **switches: Any) -> re.Pattern[str]:
    """Matches a prompt file's text up to the question, with any number for the counts in its instructions."""
    empty: dict[str, Any] = {"passages": [], "passage": {"title": "", "text": ""}, "steps": [], "history": [], "choices": [], "golds": []}
    empty |= {"link": "", "answer": ""}
    before, _, _ = render_prompt(name, question=_QUESTION, count=_QUESTION, **empty, examples=examples, **switches).partition(_QUESTION)
    return re.compile(re.sub(r"\d+", r"\\d+", re.escape(before)))


def shown_passages(text: str) -> list[ShownPassage]:
    """The passages in a prompt's text, in order."""
    shown = list[ShownPassage]()
    for groups in _SHOWN.findall(text):
        number, title, passage = ("".join(groups[part::3]) for part in range(3))  # exactly one form has matched
        shown.append(ShownPassage(int(number or len(shown) + 1), title, passage))
    for line in _OBSERVATION.findall(text):
        shown += [ShownPassage(len(shown) + number, *pair) for number, pair in enumerate(_OBSERVED.findall(line), 1)]
    return shown
