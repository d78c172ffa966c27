"""StrategyQA as released: yes/no questions, a decomposition without answers, evidence paragraphs by id and annotator.

The paragraphs are in a separate file (`*_paragraphs.json`), which is read when it is in the questions' folder.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import StrictBool, TypeAdapter, ValidationError

from refinery.contract.records import Passage, Question, SubQuestion
from refinery.errors import RecordError
from refinery.questions.base import DatasetRow, Reader, Rows, distinct, first_fault, iter_dataset, read_dataset
from refinery.runtime.files.text_file import read_text

# One annotator's evidence for one step: lists of paragraph ids, and the words `operation` and `no_evidence`.
_Evidence = list[list[str] | str]


class _Row(DatasetRow):
    qid: str
    question: str
    answer: StrictBool
    decomposition: list[str] = []  # many copies on the hub lack it, and the evidence
    evidence: Annotated[list[list[_Evidence]], Rows] = []


class _Paragraph(DatasetRow):
    title: str
    content: str


def read(path: Path) -> list[Question]:
    """Read a release file. Passages keep the dataset's ids. A question none of whose paragraphs are available has no passages.

    The question's `supporting` holds the first annotator's paragraphs, which suffice; that of a step holds every annotator's.
    """
    return read_dataset(path, _Row, partial(_to_question, paragraphs=_paragraphs_beside(path)))


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs in the release's columns, without paragraphs."""
    return iter_dataset(path, _Row, lambda row: [_to_question(row, paragraphs={})], rows=rows)


def _paragraphs_beside(path: Path) -> dict[str, _Paragraph]:
    found: dict[str, _Paragraph] = {}
    for file in sorted(path.parent.glob("*_paragraphs.json")):
        try:
            found |= TypeAdapter(dict[str, _Paragraph]).validate_json(read_text(file))
        except ValidationError as error:
            raise RecordError(f"{file}: {first_fault(error)}") from None
    return found


def _to_question(row: _Row, *, paragraphs: dict[str, _Paragraph]) -> Question:
    for number, annotated in enumerate(row.evidence, 1):
        if len(annotated) != len(row.decomposition):
            raise ValueError(f"field 'evidence': annotator {number} covers {len(annotated)} of {len(row.decomposition)} steps.")
    by_annotator = [[_paragraph_ids(evidence) for evidence in annotated] for annotated in row.evidence]
    cited = distinct(passage_id for steps in by_annotator for ids in steps for passage_id in ids)
    return Question(
        id=row.qid,
        text=row.question.strip(),
        answers=["yes" if row.answer else "no"],
        passages=[Passage(id=i, title=paragraphs[i].title, text=paragraphs[i].content) for i in cited if i in paragraphs] or None,
        supporting=distinct(passage_id for ids in by_annotator[0] for passage_id in ids) if by_annotator else None,
        decomposition=[
            SubQuestion(
                text=text.strip(), supporting=distinct(i for steps in by_annotator for i in steps[number]) if by_annotator else None
            )
            for number, text in enumerate(row.decomposition)
        ]
        or None,
        dataset="strategyqa",
    )


def _paragraph_ids(evidence: _Evidence) -> list[str]:
    return [passage_id for item in evidence if isinstance(item, list) for passage_id in item]


READER = Reader(read, of_rows, repositories=("ChilleD/StrategyQA", "tasksource/strategy-qa", "wics/strategy-qa", "voidful/StrategyQA"))
