"""2WikiMultihopQA as released (`train.json`, `dev.json`): HotpotQA's schema, with evidence triples that give a decomposition."""

from pathlib import Path

from refinery.questions.base import read_dataset
from refinery.questions.hotpotqa import HotpotRow, supporting_by_title
from refinery.questions.hotpotqa import to_question as hotpot_question
from refinery.records import Question, SubQuestion

# How many triples back the one is whose object a bridge question's triple is about, even where the two spell it differently.
_BRIDGE = {"compositional": 1, "inference": 1, "bridge_comparison": 2}


class TwoWikiRow(HotpotRow):
    """The fields of a row."""

    evidences: list[tuple[str, str, str]] = []


def read(path: Path) -> list[Question]:
    """Read a release file."""
    return read_dataset(path, TwoWikiRow, _to_question)


def _to_question(row: TwoWikiRow) -> Question:
    return hotpot_question(row).model_copy(update={"decomposition": _decomposition(row) or None, "dataset": "two_wiki"})


def _decomposition(row: TwoWikiRow) -> list[SubQuestion]:
    """One sub-question a triple; a subject that an earlier triple found is written `#1`."""
    # Subjects are named as in Wikidata, titles as in Wikipedia; their order is the same (all 180 rows looked at).
    subjects, supporting = list(dict.fromkeys(subject for subject, _, _ in row.evidences)), supporting_by_title(row)
    support_of = dict(zip(subjects, supporting.values(), strict=True)) if len(subjects) == len(supporting) else {}
    return [
        SubQuestion(text=f"What is the {relation} of {_name(row, number)}?", answer=found, supporting=support_of.get(subject))
        for number, (subject, relation, found) in enumerate(row.evidences)
    ]


def _name(row: TwoWikiRow, number: int) -> str:
    """How a sub-question names its subject."""
    subject = row.evidences[number][0]
    found_earlier = [found for _, _, found in row.evidences[:number]]
    if subject in found_earlier:
        return f"#{found_earlier.index(subject) + 1}"
    bridge = number - _BRIDGE.get(row.type, number + 1)
    return f"#{bridge + 1}" if bridge >= 0 else subject.strip()
