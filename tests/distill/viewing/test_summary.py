from pathlib import Path

from distill.teacher.teacher import RejectedRow
from distill.viewing.summary import run_summary
from distill.writing.rows import failure_line

TEACHER = {"calls": 1300, "replies_from_store": 0, "num_prompt_tokens": 900_000, "num_completion_tokens": 12_000, "cost_usd": 0.4177}
METRICS = {
    "questions": 1250,
    "questions_labelled": 1234,
    "questions_rejected": 16,
    "rejected_by_reason": {"refused": 4, "malformed": 12},
    "rows": 2468,
    "rows_by_split": {"train": 2000, "validation": 468},
    "labels": {"relevant": 968, "irrelevant": 1500},
    "teacher": TEACHER,
    "seconds_labelling": 35.2,
}


def test_a_run_ends_in_six_lines():
    assert run_summary(METRICS, Path("runs/relevance")).splitlines() == [
        "in        1,250 questions, 1,234 of them labeled",
        "rejected  16: malformed 12, refused 4. See failures.jsonl",
        "rows      2,468: irrelevant 61%, relevant 39%",
        "cost      1,300 calls, 912,000 tokens, $0.42, 35 s",
        "files     train.jsonl 2,000, validation.jsonl 468 in runs/relevance",
        "next      refinery view runs/relevance --output runs/relevance.html",
    ]


def test_the_most_frequent_cause_of_each_reason_stands_below_with_its_remedy(tmp_path):
    lines = [
        failure_line("q1", RejectedRow("refused", "status 400: content filter")),
        failure_line("q2", RejectedRow("truncated", "the reply was cut at 64 tokens; raise teacher.max_tokens")),
        failure_line("q3", RejectedRow("malformed", "field 'label': maybe"), part="p2"),
    ]
    (tmp_path / "failures.jsonl").write_text("".join(lines))
    counts = {"rejected_by_reason": {"refused": 1, "truncated": 1}, "unlabeled_parts_by_reason": {"malformed": 1}}
    assert run_summary(METRICS | counts, tmp_path).splitlines()[1:6] == [
        "rejected   2: refused 1, truncated 1. See failures.jsonl",
        "           refused, 1 of 1: status 400: content filter. Name another model for them in `fallbacks`.",
        "           truncated, 1 of 1: the reply was cut at 64 tokens; raise teacher.max_tokens",
        "unlabeled  1: malformed 1. See failures.jsonl",
        "           malformed, 1 of 1: field 'label': maybe. Try a stronger model, or a server that holds replies to a JSON schema.",
    ]


def test_replies_from_the_store_and_an_unknown_price_are_told():
    teacher = TEACHER | {"calls": 0, "replies_from_store": 7, "cost_usd": None}
    assert "cost      0 calls (7 more from the store), 912,000 tokens, price unknown, 35 s" in run_summary(
        METRICS | {"teacher": teacher}, Path("run")
    )
