"""Read a reply that has no object around its answer: a list, numbered items, or a label in words.

Prose never becomes an answer. A list or items count only if the reply is nothing else, apart from code fences and a lead such as
`Sub-questions:`; a label counts only if the reply begins with it or states it, and names no other one later.
"""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

_FENCE = re.compile(r"```(?:json|text|plaintext|markdown|md|python)?(?![\w-])")
_ITEM = re.compile(r"([ \t]*)(\d+[.)]|[-*•])[ \t]+(\S.*)")
_QUOTED_ITEMS = re.compile(r"\[\s*'")
_LEAD_END = re.compile(r"(?:[:=!]|\b(?:is|are))\**\s*\Z|\A[#*]")  # `Answer:`, `The answer is`, or a heading
_LEAD_WORDS = frozenset(
    "a an answer answers are as final follow follows following for here here's is it json list my number numbers of ok okay one ones "
    "output paragraph paragraphs passage passages question questions reply response result results s search sub sure the these this".split()
)
_AROUND = " \t\n\"'*`("
_LEAD = re.compile(r"^[\w ]{0,30}:[\s\"'*`(]*")  # such as `Answer:** `
_AFTER = re.compile(r"[\n\"'*`).,:;!]")
_STATED = re.compile(r"^(?:the |this |my )?[\w ]{0,30}\b(?:is|was)\b[\s:\"'*`(]*")  # such as `The answer is "`, `This paragraph is `
_AFTER_STATED = re.compile(r"[\n\"'*`).,:;!]| to the question\b| because\b")
_YES_OR_NO = re.compile(r"[\s*\"'`(]*(yes|no)\b(?!\W{0,3}(?:and|or)?\W{0,3}(?:yes|no)\b)")
_NEGATION = r"(?:\bnot|n't|\bnever|\bnor?|\bcannot be)\s+(?:\w+\s+){0,3}"


def list_of(text: str, name: str, repaired: Callable[[str], str]) -> list[Any] | None:
    """The list that a reply consists of, for a field of this name. Only its quotes are repaired: `[sic]` is not a list."""
    text = _FENCE.sub("\n", text)
    start = text.find("[")
    if start < 0 or not is_lead(text[:start], name):
        return None
    part = text[start:].strip().removesuffix(".")
    with suppress(ValueError, RecursionError):
        found = json.loads(repaired(part) if _QUOTED_ITEMS.match(part) and part.endswith("]") else part)
        return found if isinstance(found, list) and found else None
    return None


def items_of(text: str, name: str = "") -> list[str]:
    """The items that a reply consists of: one a line, all numbered or all with bullets. Empty if there is anything else."""
    lines = [line.rstrip() for line in _FENCE.sub("\n", text).splitlines() if line.strip()]
    start = next((number for number, line in enumerate(lines) if _ITEM.fullmatch(line)), len(lines))
    items = [_ITEM.fullmatch(line) for line in lines[start:]]
    forms = {(item[1], item[2][0].isdigit()) for item in items if item}
    if len(forms) != 1 or None in items or not is_lead("\n".join(lines[:start]), name):
        return []
    return [item[3].strip() for item in items if item]


def is_lead(text: str, name: str) -> bool:
    """Whether a text only announces an answer to the field `name`, as `Sure! Here are the sub-questions:` does, or is empty."""
    text = text.strip()
    said = set(re.findall(r"[\w']+", text.lower().replace("_", " ")))
    own = {*re.split(r"[_ ]", name.lower()), *name.lower().replace("_", "").split()}
    return not text or (bool(_LEAD_END.search(text)) and said <= _LEAD_WORDS | own)


def stated_label(text: str, labels: Sequence[str]) -> str | None:
    """The label that the reply begins with or states, if nothing after it names another one or denies it.

    It may come after `Answer:` or `The answer is`, and within quotes or asterisks. `is not relevant` states the label `irrelevant`.
    """
    plain = text.lower().strip(_AROUND)
    for said, after in ((plain, _AFTER), (_LEAD.sub("", plain, count=1), _AFTER), (_STATED.sub("", plain, count=1), _AFTER_STATED)):
        negated = said.startswith("not ")
        said = said.removeprefix("not ").lstrip(_AROUND)
        named = [
            label for label in labels if said.startswith(label.lower()) and (len(said) == len(label) or after.match(said[len(label) :]))
        ]
        if len(named) == 1:
            if _is_doubted(said[len(named[0]) :], named[0], labels):
                return None
            return opposite_label(named[0], labels) if negated else named[0]
    return None


def yes_or_no(text: str) -> bool | None:
    """Whether a judge that is asked for yes or no says yes; None if it begins with neither word, or with both."""
    found = _YES_OR_NO.match(text.lower())
    return None if found is None else found[1] == "yes"


def _is_doubted(rest: str, label: str, labels: Sequence[str]) -> bool:
    """Whether the rest of a reply names another label, or says that this one does not apply."""
    others = [re.escape(other.lower()) for other in labels if other != label]
    named = rf"(?<!\w)(?:{'|'.join(others)})(?!\w)" if others else r"(?!)"
    return bool(re.search(named, rest) or re.search(rf"{_NEGATION}{re.escape(label.lower())}(?!\w)", rest))


def opposite_label(label: str, labels: Sequence[str]) -> str | None:
    """The label that is another one with a prefix, such as `irrelevant` for `relevant`, or None."""
    return next((other for other in labels if label in labels and other != label and other.endswith(label)), None)
