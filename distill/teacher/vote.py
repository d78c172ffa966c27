"""Choose one of several samples of a row: each label by majority, a text by its answer and its likeness to the other samples.

Ties are decided by the order of the samples: of two labels with as many votes, the one that an earlier sample gave is taken.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from distill.teacher.agreement import DIFFERENT, SAME
from distill.teacher.teacher import RejectedRow, RequestLog
from refinery.contract.records import Decomposition, JudgeLabel, PromptCompletion, Question, Record, Trajectory
from refinery.metrics.squad import token_f1
from refinery.text import normalize_answer


@dataclass(frozen=True, slots=True)
class Sample:
    """What one labeling of a row gave: its records or why there are none, and its requests."""

    records: Sequence[Record]
    rejected: RejectedRow | None = None
    asked: Sequence[RequestLog] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """A row's records, each with the sample that it is from and the number of samples that agree with it."""

    records: Sequence[Record]
    samples: Sequence[Sample] = ()
    votes: Sequence[int] = field(default_factory=list)


def have_labels(samples: Sequence[Sample]) -> bool:
    """Whether the samples label the same things, in the same order."""
    lengths = {len(sample.records) for sample in samples}
    return len(lengths) == 1 and all(isinstance(record, JudgeLabel) for sample in samples for record in sample.records)


def vote(samples: Sequence[Sample]) -> Chosen:
    """The records that most of the samples agree on; texts are chosen whole. None may be rejected."""
    if not have_labels(samples):
        return chosen_text(samples, by_agreement(samples))
    chosen = [_majority([sample.records[number] for sample in samples]) for number in range(len(samples[0].records))]
    return Chosen(
        [samples[first].records[number] for number, (first, _) in enumerate(chosen)],
        [samples[first] for first, _ in chosen],
        [votes for _, votes in chosen],
    )


def chosen_text(samples: Sequence[Sample], number: int) -> Chosen:
    """All records of one sample; those with the same outcome vote for it."""
    records = samples[number].records
    votes = sum(outcome(sample.records) == outcome(records) for sample in samples)
    return Chosen(records, [samples[number]] * len(records), [votes] * len(records))


def _majority(labels: Sequence[Record]) -> tuple[int, int]:
    """The number of the first sample with the most frequent label, and how many samples have it."""
    said = [str(record.label) for record in labels if isinstance(record, JudgeLabel)]
    label, votes = Counter(said).most_common(1)[0]  # the first of equally frequent ones
    return said.index(label), votes


def by_agreement(samples: Sequence[Sample]) -> int:
    """The number of the sample whose outcome most samples have, and of those the one with the highest mean token F1 to all others."""
    outcomes, texts = [outcome(sample.records) for sample in samples], ["\n".join(map(text_of, sample.records)) for sample in samples]
    same = Counter(outcomes)

    def agreement(number: int) -> tuple[int, float]:
        return same[outcomes[number]], sum(token_f1(texts[number], [text]) for text in texts)

    return max(range(len(samples)), key=agreement)  # the first of equal ones


def pairs_of(samples: Sequence[Sample]) -> Iterator[tuple[str, str]]:
    """Each two samples' labels of each thing; for texts, whether their outcomes are the same."""
    labeled = have_labels(samples)
    for one, other in combinations(samples, 2):
        if not labeled:
            yield SAME, SAME if outcome(one.records) == outcome(other.records) else DIFFERENT
            continue
        for first, second in zip(one.records, other.records, strict=True):
            if isinstance(first, JudgeLabel) and isinstance(second, JudgeLabel):
                yield str(first.label), str(second.label)


def outcome(records: Sequence[Record]) -> tuple[str, ...]:
    """What must be equal in two samples that agree: a trajectory's answer, and the whole text of others, normalized as answers are."""
    return tuple(normalize_answer(record.answer or "" if isinstance(record, Trajectory) else text_of(record)) for record in records)


def text_of(record: Record) -> str:
    """What the teacher wrote, without passages."""
    match record:
        case Decomposition():
            return "\n".join(record.sub_questions)
        case Trajectory():
            return "\n".join(f"{step.action} {step.text}" for step in record.steps)
        case Question():
            return "\n".join([record.text, *record.answers])
        case PromptCompletion():
            return record.reply
        case _:
            return record.model_dump_json(exclude={"provenance", "question_id", "question"})
