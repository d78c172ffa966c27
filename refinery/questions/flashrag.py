"""FlashRAG's layout (`nq/test.jsonl`): id, question, golden_answers. The folder's name is the dataset's name.

Of the metadata, only PopQA's popularity is read. For multiple choice and passages, read the dataset's own release instead.
On the hub, the dataset is the configuration: `RUC-NLPIR/FlashRAG_datasets:test?config=nq`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, Reader, distinct, iter_dataset, read_dataset
from refinery.questions.popqa import popularity
from refinery.runtime.files.hub_dataset import parse_address


class _Metadata(DatasetRow):
    s_pop: int | None = None


class _Row(DatasetRow):
    id: str
    question: str
    golden_answers: list[str]
    metadata: _Metadata = _Metadata()


def read(path: Path) -> list[Question]:
    """Read a file in this layout. An id contains the question's split, as in `test_17`."""
    return read_dataset(path, _Row, lambda row: _to_question(row, path.absolute().parent.name))


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs in this layout."""
    address = parse_address(str(path))
    dataset = (address and address.config) or "flashrag"
    return iter_dataset(path, _Row, lambda row: [_to_question(row, dataset)], rows=rows)


def _to_question(row: _Row, dataset: str) -> Question:
    s_pop, split = row.metadata.s_pop, row.id.partition("_")[0]
    return Question(
        id=row.id,
        text=row.question.strip(),
        answers=distinct(row.golden_answers),
        type=None if s_pop is None else popularity(s_pop),
        dataset=dataset,
        split=split if split in ("train", "dev", "test") else "",
    )


READER = Reader(read, of_rows, repositories=("RUC-NLPIR/FlashRAG_datasets",))
