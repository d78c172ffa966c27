"""Labels in a few words, by the fields that their rows have, so that those of third-party tasks are shown too."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from distill.teacher.teacher import RejectedRow

_LONGEST = 300


def label_text(rows: Sequence[dict[str, Any]]) -> str:
    """A short summary of the labels of one question, of which there is at least one."""
    row = rows[0]
    if "steps" in row:
        last = row["steps"][-1]
        return last["text"] if last["action"] == "answer" else "no answer"
    if "sub_questions" in row:
        return " / ".join(row["sub_questions"])
    if "chosen" in row:
        return f"{len(rows)} pairs"
    if "passage" in row or "path" in row:
        return ", ".join(f"{count} {label}" for label, count in sorted(Counter(row["label"] for row in rows).items(), reverse=True))
    if "label" in row:
        return row["label"] + (f" ({row['share']:.2f})" if "share" in row else "")
    return " | ".join(row.get("answers", []))


def example_texts(outcomes: Iterable[tuple[Any, Sequence[Any] | RejectedRow]]) -> list[tuple[str, str]]:
    """What was asked and what came of it, of questions with their outcomes, shortened."""
    return [(_asked(question, outcome)[:_LONGEST], _said(outcome)[:_LONGEST]) for question, outcome in outcomes]


def _asked(question: Any, outcome: Sequence[Any] | RejectedRow) -> str:
    """The question's text; of a row that became a question, that question's."""
    written = getattr(outcome[0], "text", None) if not isinstance(outcome, RejectedRow) and outcome else None
    return written or getattr(question, "text", question.id)


def _said(outcome: Sequence[Any] | RejectedRow) -> str:
    if isinstance(outcome, RejectedRow):
        return f"rejected, {outcome}"
    return label_text([row.model_dump(exclude_none=True) for row in outcome]) if outcome else "no rows"
