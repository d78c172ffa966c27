import json
from pathlib import Path

import pytest

from refinery.errors import RecordError
from refinery.questions.base import read_questions

DATA = Path(__file__).parents[3] / "recipes" / "sample" / "data" / "musique"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "musique"

ROW = {
    "id": "2hop__1_2",
    "question": "Where was the director of Dune born?",
    "answer": "Lyon",
    "answer_aliases": ["Lugdunum", "Lyon"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Oslo", "paragraph_text": "A city.", "is_supporting": False},
        {"idx": 1, "title": "Dune", "paragraph_text": "Maria Torvel made it.", "is_supporting": True},
        {"idx": 2, "title": "Maria Torvel", "paragraph_text": "Born in Lyon.", "is_supporting": True},
    ],
    "question_decomposition": [
        {"id": 1, "question": "Dune >> director", "answer": "Maria Torvel", "paragraph_support_idx": 1},
        {"id": 2, "question": "Where was #1 born?", "answer": "Lyon", "paragraph_support_idx": 2},
    ],
}


def read_rows(tmp_path, *rows):
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return read_questions([tmp_path / "rows.jsonl"], reader="musique")


def test_a_row_becomes_a_question_with_its_aliases(tmp_path):
    (question,) = read_rows(tmp_path, ROW)
    assert (question.type, question.answers) == ("2hop", ["Lyon", "Lugdunum"])
    assert question.supporting == ["2hop__1_2:1", "2hop__1_2:2"]


def test_references_and_each_steps_paragraph_are_kept(tmp_path):
    steps = read_rows(tmp_path, ROW)[0].decomposition
    assert [(step.text, step.supporting) for step in steps] == [
        ("Dune >> director", ["2hop__1_2:1"]),
        ("Where was #1 born?", ["2hop__1_2:2"]),
    ]


def test_a_step_without_a_paragraph_names_none(tmp_path):
    unsupported = [ROW["question_decomposition"][0] | {"paragraph_support_idx": None}]
    assert read_rows(tmp_path, ROW | {"question_decomposition": unsupported})[0].decomposition[0].supporting is None


def test_a_malformed_paragraph_is_named_with_its_line(tmp_path):
    with pytest.raises(RecordError, match=r"rows.jsonl:2: field 'paragraphs\.0\.idx': Field required"):
        read_rows(tmp_path, ROW, ROW | {"paragraphs": [{"title": "Oslo"}]})


@pytest.mark.parametrize(("split", "rows"), [("train", 16), ("test", 8)])
def test_the_sample_reads_whole(split, rows):
    assert len(read_questions([DATA / f"{split}.jsonl"], reader="musique")) == rows


def test_the_release_reads_whole():
    path = SHARED / "musique_ans_v1.0_dev.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    questions = read_questions([path], reader="musique")
    assert len(questions) == 120
    assert {question.type for question in questions} == {"2hop", "3hop", "4hop"}
    assert all({i for step in q.decomposition for i in step.supporting} == set(q.supporting) for q in questions)
