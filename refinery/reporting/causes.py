"""Causes of rejected rows or failed questions: for each reason, the most frequent cause in the words of the server or of the check."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from refinery.text import one_line, printable

_MOST_CAUSES = 1_000  # distinguished for each reason, to bound the memory if a million differ
_MOST_REASONS, _LENGTH = 5, 200
# Parts that differ between rows with the same cause: a quoted text, a number, and the reply itself.
_OWN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d[\d.,]*""")
_REPLY = re.compile(r"[;,] (?:last )?reply: .*\Z", re.DOTALL)
_TOO_LONG = re.compile(r"context (?:length|window|size)|max_model_len|too (?:long|many tokens)|maximum (?:context|input)", re.IGNORECASE)
_AGAIN = "--resume asks them again."
REMEDIES = {
    "malformed": "Try a stronger model, or a server that holds replies to a JSON schema.",
    "refused": "Try another model.",
    "empty": "Try another model.",
    "no_reply": _AGAIN,
    "search_failed": _AGAIN,
    "not_served": _AGAIN,
}
_SHORTER = "Shorten the prompts (passages_per_query), lower max_tokens, or serve the model with a longer context."


class Causes:
    """Counts causes by reason. Causes that differ only in numbers and quoted texts count as one, reported in the first wording seen."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._words: dict[tuple[str, str], str] = {}
        self._totals: Counter[str] = Counter()

    def add(self, reason: str, detail: str) -> None:
        """Add a rejection or a fault; its detail may begin with its reason."""
        detail = one_line(detail.removeprefix(f"{reason}: "))
        cause = _OWN.sub("#", _REPLY.sub("", detail))[:_LENGTH]
        counts = self._counts.setdefault(reason, Counter())
        self._totals[reason] += 1
        if cause in counts or len(counts) < _MOST_CAUSES:
            counts[cause] += 1
            self._words.setdefault((reason, cause), detail)

    def report(self) -> dict[str, Any]:
        """For `metrics.json`: by reason, most frequent first, the count and the most frequent cause with its count."""
        found = {reason: self._counts[reason].most_common(1)[0] for reason, _ in self._totals.most_common()}
        return {
            reason: {"total": self._totals[reason], "count": count, "cause": self._words[reason, cause]}
            for reason, (cause, count) in found.items()
        }


def cause_lines(report: Mapping[str, Any], remedies: Mapping[str, str] = REMEDIES) -> list[str]:
    """A line for each of the most frequent reasons: the most frequent cause, its count, and the remedy."""
    return [_line(reason, of, remedies) for reason, of in list(report.items())[:_MOST_REASONS]]


def _line(reason: str, of: Mapping[str, Any], remedies: Mapping[str, str]) -> str:
    cause = of["cause"] if len(of["cause"]) <= _LENGTH else f"{of['cause'][:_LENGTH]} ..."
    remedy = _SHORTER if _TOO_LONG.search(of["cause"]) else remedies.get(reason, "")
    stop = "" if not remedy or cause.endswith((".", "!", "?")) else "."
    return printable(f"{reason}, {of['count']:,} of {of['total']:,}: {cause}{stop} {remedy}".rstrip())
