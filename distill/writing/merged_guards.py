"""Compare the rows of all shards with each other, as a single run would have done."""

from pathlib import Path
from typing import Any

from distill.inputs.held_out_documents import HELD_OUT
from distill.label_task import Review
from distill.teacher.teacher import RejectedRow
from distill.writing.parquet import write_parquet
from distill.writing.rows import failure_line
from refinery.contract.records import Question, iter_records, write_records


def review_merged(folder: Path, review: Review, metrics: dict[str, Any]) -> None:
    """Move the questions that `review` rejects from the merged files to `failures.jsonl`, and count them in `metrics`.

    Held-out splits come first, as in a run.
    """
    splits = sorted(metrics["rows_by_split"], key=lambda split: (split not in HELD_OUT, split))
    with (folder / "failures.jsonl").open("a", encoding="utf-8") as failures:
        for split in splits:
            kept: list[Question] = []
            for question in iter_records(folder / f"{split}.jsonl", Question):
                try:
                    review(question, [question])
                    kept.append(question)
                except RejectedRow as error:
                    failures.write(failure_line(question.id, error))
                    _count(metrics, split, error.reason)
            write_records(folder / f"{split}.jsonl", kept)
            write_parquet(folder / f"{split}.jsonl", Question)


def _count(metrics: dict[str, Any], split: str, reason: str) -> None:
    """Move one question, with its one row, from the labeled ones to the rejected ones."""
    metrics["rejected_by_reason"][reason] = metrics["rejected_by_reason"].get(reason, 0) + 1
    metrics["questions_rejected"] += 1
    metrics["questions_labelled"] -= 1
    metrics["rows"] -= 1
    metrics["rows_by_split"][split] -= 1
    metrics["guards"]["rows"] -= 1
