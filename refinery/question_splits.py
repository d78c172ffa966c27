"""Split questions: a fraction for validation and one for testing, chosen by a hash of each id, so that adding questions moves no others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.repeated_questions import AskedQuestions
from refinery.runtime.files.fingerprint import id_number

HELD_OUT = ("test", "validation")
_FEW = 50  # questions, below which a difference of ten points is likely to be chance


@dataclass(frozen=True, slots=True)
class SplitQuestions:
    """The questions by split, and those left out, each with the question that it repeats in the same or nearly the same words."""

    by_split: dict[str, list[Question]] = field(default_factory=lambda: {"train": [], "validation": [], "test": []})
    same: list[tuple[Question, Question]] = field(default_factory=list[tuple[Question, Question]])
    nearly_the_same: list[tuple[Question, Question]] = field(default_factory=list[tuple[Question, Question]])


def split_questions(questions: Iterable[Question], shares: Mapping[str, float]) -> SplitQuestions:
    """Split the questions. A question is left out if it repeats an earlier or held-out one, according to AskedQuestions.

    The questions' own splits are kept if any differs from `train`. Otherwise `shares` of them are held out, at least one question each.
    Raises RecordError for too few questions.
    """
    given = list(questions)
    splits = {question.id: question.split or "train" for question in given}
    if set(splits.values()) <= {"train"}:
        splits = _by_share([question.id for question in given], shares)
    ordered = sorted(given, key=lambda question: splits[question.id] not in HELD_OUT)  # stable: held-out questions first
    found, asked = SplitQuestions(), AskedQuestions[Question]()
    for question in ordered:
        if earlier := asked.same(question.text):
            found.same.append((question, earlier))
        elif earlier := asked.nearly_the_same(question.text):
            found.nearly_the_same.append((question, earlier))
        else:
            asked.add(question.text, question)
            found.by_split.setdefault(splits[question.id], []).append(question.model_copy(update={"split": splits[question.id]}))
    return found


def few_questions(what: str, count: int) -> str | None:
    """A sentence about a split with too few questions to compare systems on."""
    return (
        f"{count} {what} questions are few: below {_FEW}, ten points may well be chance. Add documents or questions."
        if count < _FEW
        else None
    )


def _by_share(ids: Sequence[str], shares: Mapping[str, float]) -> dict[str, str]:
    counts = {split: max(1, round(share * len(ids))) for split, share in shares.items() if share > 0}
    if sum(counts.values()) >= len(ids):
        raise RecordError(f"{len(ids)} questions are too few to hold out {' and '.join(counts)}. Add questions, or set their splits.")
    names = [split for split, count in counts.items() for _ in range(count)]
    by_hash = sorted(ids, key=id_number)
    return dict(zip(by_hash, [*names, *["train"] * (len(ids) - len(names))], strict=True))
