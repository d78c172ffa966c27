"""MIGRES' open-domain questions, in the layout of their release; the rows are ours."""

import json

import pytest

from refinery.errors import RecordError
from refinery.questions.base import read_questions

ROWS = [
    {"question": "who directed dune", "context": "", "id": -3, "answer": ["Maria"], "dataset": "nq"},
    {"question": "who wrote dune", "example_id": 7, "short_answers": ["Ann", "Ann", "A. Lee"], "dataset": "nq"},
    {"question": 'Who wrote "Dune" ? ', "answer": "['Ann', \"Ann's mother\"]", "dataset": "trivia"},
]


def read(tmp_path, rows, reader):
    (tmp_path / "odqa.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [
        (question.id, question.text, question.answers, question.dataset)
        for question in read_questions([tmp_path / "odqa.json"], reader=reader)
    ]


def test_each_dataset_is_read_alone_or_both_together(tmp_path):
    nq = [("dev_0", "who directed dune", ["Maria"], "nq_open"), ("dev_1", "who wrote dune", ["Ann", "A. Lee"], "nq_open")]
    trivia = [("dev_2", 'Who wrote "Dune" ?', ["Ann", "Ann's mother"], "triviaqa")]
    assert read(tmp_path, ROWS, "refinery.questions.migres_odqa:NQ") == nq
    assert read(tmp_path, ROWS, "refinery.questions.migres_odqa:TRIVIAQA") == trivia
    assert read(tmp_path, ROWS, "migres_odqa") == nq + trivia


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "answer": "__import__('os')", "dataset": "trivia"}, r"odqa.json:1: field 'answer'.*is not a list of texts"),
        ({"question": "q", "answer": ["a"], "dataset": "squad"}, r"odqa.json:1: field 'dataset': 'squad' is not one of nq, trivia"),
    ],
)
def test_a_row_of_another_kind_is_refused(tmp_path, row, message):
    with pytest.raises(RecordError, match=message):
        read(tmp_path, [row], "migres_odqa")
