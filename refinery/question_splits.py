"""Give questions splits: a share for validation and one for testing, chosen by a hash of each id, so that more questions move no other."""

from collections.abc import Iterable, Mapping, Sequence

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.runtime.fingerprint import id_number
from refinery.text import normalize_answer

HELD_OUT = ("test", "validation")


def split_questions(questions: Iterable[Question], shares: Mapping[str, float]) -> tuple[dict[str, list[Question]], int]:
    """The questions by split, and how many were left out because an earlier one, or one that is held out, has the same text.

    Splits of their own are kept if there is any but `train`. Otherwise `shares` of them are held out, at least one question each.
    Raises RecordError for too few questions.
    """
    given = list(questions)
    splits = {question.id: question.split or "train" for question in given}
    if set(splits.values()) <= {"train"}:
        splits = _by_share([question.id for question in given], shares)
    ordered = sorted(given, key=lambda question: splits[question.id] not in HELD_OUT)  # stable: what is held out first
    kept: dict[str, list[Question]] = {}
    seen: set[str] = set()
    for question in ordered:
        text = normalize_answer(question.text)
        if text not in seen:
            kept.setdefault(splits[question.id], []).append(question.model_copy(update={"split": splits[question.id]}))
        seen.add(text)
    return kept, len(given) - len(seen)


def _by_share(ids: Sequence[str], shares: Mapping[str, float]) -> dict[str, str]:
    counts = {split: max(1, round(share * len(ids))) for split, share in shares.items() if share > 0}
    if sum(counts.values()) >= len(ids):
        raise RecordError(f"{len(ids)} questions are too few to hold out {' and '.join(counts)}. Add questions, or set their splits.")
    names = [split for split, count in counts.items() for _ in range(count)]
    by_hash = sorted(ids, key=id_number)
    return dict(zip(by_hash, [*names, *["train"] * (len(ids) - len(names))], strict=True))
