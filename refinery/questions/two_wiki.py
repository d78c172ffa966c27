"""2WikiMultihopQA as released (`train.json`, `dev.json`): HotpotQA's schema, with evidence triples that give a decomposition.

Other names of an answer are in the release's `id_aliases.json` (JSON Lines), which is read when it is in the questions' folder.
Without it, `em.2wiki` counts only the answer itself, unlike the official script, and the log says so.
"""

import logging
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import field_validator

from refinery.contract.records import Question, SubQuestion
from refinery.questions.base import DatasetRow, Reader, as_rows, distinct, iter_dataset, json_rows, parse_row, read_dataset
from refinery.questions.hotpotqa import HotpotRow, supporting_by_title
from refinery.questions.hotpotqa import to_question as hotpot_question

_log = logging.getLogger(__name__)

# A bridge question's triple is about the object of the triple this many places before it, even where the two are spelled differently.
_BRIDGE = {"compositional": 1, "inference": 1, "bridge_comparison": 2}


_TRIPLE = ("fact", "relation", "entity")


class TwoWikiRow(HotpotRow):
    """The fields of a row."""

    evidences: list[tuple[str, str, str]] = []
    answer_id: str | None = None

    @field_validator("evidences", mode="before")
    @classmethod
    def _triples(cls, value: Any) -> Any:
        """The list itself, which copies on the hub hold as JSON text or as columns: {fact: [...], relation: [...], entity: [...]}."""
        rows = as_rows(value)
        return [[row.get(name) for name in _TRIPLE] if isinstance(row, dict) else row for row in rows] if isinstance(rows, list) else rows


class _Aliases(DatasetRow):
    Q_id: str
    aliases: list[str]
    demonyms: list[str]


def read(path: Path) -> list[Question]:
    """Read a release file."""
    return read_dataset(path, TwoWikiRow, partial(_to_question, aliases=_aliases_beside(path)))


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs in either layout of HotpotQA's columns, without aliases."""
    _say_without_aliases(path)
    return iter_dataset(path, TwoWikiRow, lambda row: [_to_question(row, aliases={})], rows=rows)


def _aliases_beside(path: Path) -> dict[str, list[str]]:
    file = path.parent / "id_aliases.json"
    if not file.exists():
        _say_without_aliases(path)
        return {}
    entities = (parse_row(values, _Aliases, where=where) for where, values in json_rows(file))
    return {entity.Q_id: [*entity.aliases, *entity.demonyms] for entity in entities}


@cache  # once, however often a run reads its questions
def _say_without_aliases(path: Path) -> None:
    _log.info("%s: without the release's id_aliases.json beside the questions, answers have no aliases, and em.2wiki is plain EM", path)


def _to_question(row: TwoWikiRow, *, aliases: dict[str, list[str]]) -> Question:
    question = hotpot_question(row)
    answers = distinct([*question.answers, *aliases.get(row.answer_id or "", [])])
    return question.model_copy(update={"answers": answers, "decomposition": _decomposition(row) or None, "dataset": "two_wiki"})


def _decomposition(row: TwoWikiRow) -> list[SubQuestion]:
    """One sub-question per triple. A subject that an earlier triple found is written as a reference such as `#1`."""
    # Subjects are named as in Wikidata and titles as in Wikipedia. Their order is the same in all 180 rows that we checked.
    subjects, supporting = list(dict.fromkeys(subject for subject, _, _ in row.evidences)), supporting_by_title(row)
    support_of = dict(zip(subjects, supporting.values(), strict=True)) if row.context and len(subjects) == len(supporting) else {}
    return [
        SubQuestion(text=f"What is the {relation} of {_name(row, number)}?", answer=found, supporting=support_of.get(subject))
        for number, (subject, relation, found) in enumerate(row.evidences)
    ]


def _name(row: TwoWikiRow, number: int) -> str:
    """The name of the subject in a sub-question."""
    subject = row.evidences[number][0]
    found_earlier = [found for _, _, found in row.evidences[:number]]
    if subject in found_earlier:
        return f"#{found_earlier.index(subject) + 1}"
    bridge = number - _BRIDGE.get(row.type or "", number + 1)
    return f"#{bridge + 1}" if bridge >= 0 else subject.strip()


READER = Reader(
    read,
    of_rows,
    ("evidences", "supporting_facts"),
    ("xanhho/2WikiMultihopQA", "framolfese/2WikiMultihopQA", "voidful/2WikiMultihopQA", "ohjoonhee/2WikiMultihopQA"),
)
