import json
from pathlib import Path

import pytest

from refinery.errors import RecordError
from refinery.questions.base import read_questions

DATA = Path(__file__).parents[3] / "recipes" / "sample" / "data" / "hotpotqa"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "hotpotqa"

ROW = {
    "_id": "q",
    "question": " Where was the director of Dune born? ",
    "answer": "Lyon",
    "type": "bridge",
    "level": "hard",
    "context": [["Dune", ["Dune is a film.", " Maria Torvel made it."]], ["Oslo", ["A city."]], ["Maria Torvel", ["Born in Lyon."]]],
    "supporting_facts": [["Maria Torvel", 0], ["Dune", 1], ["Dune", 0]],
}


def read_rows(tmp_path, *rows):
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    return read_questions([tmp_path / "rows.json"], reader="hotpotqa")


def test_a_row_becomes_a_question(tmp_path):
    (question,) = read_rows(tmp_path, ROW)
    assert (question.text, question.answers, question.type) == ("Where was the director of Dune born?", ["Lyon"], "bridge")
    assert [(passage.id, passage.title) for passage in question.passages] == [("q:0", "Dune"), ("q:1", "Oslo"), ("q:2", "Maria Torvel")]
    assert question.passages[0].text == "Dune is a film. Maria Torvel made it."


def test_supporting_paragraphs_come_in_the_order_of_the_facts_once_each(tmp_path):
    assert read_rows(tmp_path, ROW)[0].supporting == ["q:2", "q:0"]


@pytest.mark.parametrize("fact", [["Dune", 9], ["Lyon", 0]])
def test_a_fact_that_the_context_lacks_supports_with_an_id_no_passage_has(tmp_path, fact):
    (question,) = read_rows(tmp_path, ROW | {"supporting_facts": [["Dune", 0], fact]})
    assert question.supporting == ["q:0", f"q:{fact[0]}:{fact[1]}"]


def test_of_two_paragraphs_of_one_title_the_first_that_has_the_sentence_supports(tmp_path):
    twins = [["Dune", ["One."]], ["Dune", ["One.", "Two."]]]
    (question,) = read_rows(tmp_path, ROW | {"context": twins, "supporting_facts": [["Dune", 0], ["Dune", 1]]})
    assert question.supporting == ["q:0", "q:1"]


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("answer", None, "field 'answer': Input should be a valid string"),
        ("context", [["Dune"]], r"field 'context\.0\.1': Field required"),
        ("supporting_facts", [["Dune", "first"]], r"field 'supporting_facts\.0\.1': Input should be a valid integer"),
    ],
)
def test_a_malformed_field_is_named_with_its_row(tmp_path, field, value, fault):
    with pytest.raises(RecordError, match=f"rows.json: row 2: {fault}"):
        read_rows(tmp_path, ROW, ROW | {field: value})


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_sample_row_has_its_supporting_passages(split):
    for question in read_questions([DATA / f"{split}.json"], reader="hotpotqa"):
        assert set(question.supporting) < {passage.id for passage in question.passages}
        assert question.split == split


def test_the_release_reads_whole():
    path = SHARED / "hotpot_dev_distractor_v1.json"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    questions = read_questions([path], reader="hotpotqa")
    assert len(questions) == 120
    assert {question.type for question in questions} == {"bridge", "comparison"}
    assert all(len(question.supporting) == 2 for question in questions)
