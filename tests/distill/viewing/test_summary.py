from pathlib import Path

from distill.viewing.summary import run_summary

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
        "rejected  16: malformed 12, refused 4",
        "rows      2,468: irrelevant 61%, relevant 39%",
        "cost      1,300 calls, 912,000 tokens, $0.42, 35 s",
        "files     train.jsonl 2,000, validation.jsonl 468 in runs/relevance",
        "next      refinery view runs/relevance --output runs/relevance.html",
    ]


def test_replies_from_the_store_and_an_unknown_price_are_told():
    teacher = TEACHER | {"calls": 0, "replies_from_store": 7, "cost_usd": None}
    assert "cost      0 calls (7 more from the store), 912,000 tokens, price unknown, 35 s" in run_summary(
        METRICS | {"teacher": teacher}, Path("run")
    )
