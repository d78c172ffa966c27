import json
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


def test_rejected_rows_are_told_by_their_most_frequent_cause(tmp_path):
    long = "refused: status 400: your request has {} tokens, the maximum is 512"
    details = [("refused", long.format(600 + number)) for number in range(3)] + [("refused", "refused: status 400: filtered")]
    details += [("malformed", "malformed: field 'sub_questions': Field required; reply: '{}'")] * 12
    lines = [{"question_id": f"q{number}", "reason": reason, "detail": detail} for number, (reason, detail) in enumerate(details)]
    (tmp_path / "failures.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [line.split(maxsplit=1)[-1] for line in run_summary(METRICS, tmp_path).splitlines()[1:5]] == [
        "16: malformed 12, refused 4",
        "malformed 12: field 'sub_questions': Field required (each)",
        "refused 4: status 400: your request has 600 tokens, the maximum is 512 (3 of them)",
        f"16 are in {tmp_path}/failures.jsonl",
    ]
