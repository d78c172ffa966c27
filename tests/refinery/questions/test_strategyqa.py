import json
from pathlib import Path

import pytest

from refinery.errors import RecordError
from refinery.questions.strategyqa import read

DATA = Path(__file__).parents[3] / "recipes" / "sample" / "data" / "strategyqa"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "strategyqa"

ROW = {
    "qid": "q",
    "question": "Is Lyon north of Oslo?",
    "answer": False,
    "decomposition": ["Where is Lyon?", "Where is Oslo?", "Is #1 north of #2?"],
    "evidence": [
        [[["Lyon-1"]], [["Oslo-1", "Oslo-2"]], ["operation"]],
        [[["Lyon-3"], "no_evidence"], ["no_evidence"], ["operation"]],
    ],
}
PARAGRAPHS = {
    "Lyon-1": {"title": "Lyon", "section": "", "content": "Lyon is in France."},
    "Oslo-1": {"title": "Oslo", "section": "", "content": "Oslo is in Norway."},
    "Lyon-3": {"title": "Lyon", "section": "", "content": "Lyon lies on the Rhône."},
}


def read_rows(tmp_path, *rows, paragraphs=PARAGRAPHS):
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    if paragraphs:
        (tmp_path / "strategyqa_dev_paragraphs.json").write_text(json.dumps(paragraphs))
    return read(tmp_path / "rows.json")


@pytest.mark.parametrize(("answer", "text"), [(True, "yes"), (False, "no")])
def test_answers_are_yes_and_no(tmp_path, answer, text):
    assert read_rows(tmp_path, ROW | {"answer": answer})[0].answers == [text]


def test_passages_are_the_paragraphs_that_any_annotator_cites(tmp_path):
    assert [passage.id for passage in read_rows(tmp_path, ROW)[0].passages] == ["Lyon-1", "Oslo-1", "Lyon-3"]


def test_the_first_annotators_paragraphs_support_the_question_found_or_not(tmp_path):
    assert read_rows(tmp_path, ROW)[0].supporting == ["Lyon-1", "Oslo-1", "Oslo-2"]


def test_every_annotators_paragraphs_support_a_step_and_an_operation_needs_none(tmp_path):
    steps = read_rows(tmp_path, ROW)[0].decomposition
    assert [step.supporting for step in steps] == [["Lyon-1", "Lyon-3"], ["Oslo-1", "Oslo-2"], []]


def test_without_the_paragraphs_a_question_has_no_passages(tmp_path):
    assert read_rows(tmp_path, ROW, paragraphs=None)[0].passages is None


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("answer", "yes", "field 'answer': Input should be a valid boolean."),
        ("evidence", [[["operation"]]], "field 'evidence': annotator 1 covers 1 of 3 steps."),
        ("decomposition", "Where is Lyon?", "field 'decomposition': Input should be a valid list."),
    ],
)
def test_a_malformed_field_is_named_with_its_row(tmp_path, field, value, fault):
    with pytest.raises(RecordError, match=f"rows.json: row 1: {fault}"):
        read_rows(tmp_path, ROW | {field: value})


def test_a_malformed_paragraph_is_named_with_its_file(tmp_path):
    with pytest.raises(RecordError, match=r"strategyqa_dev_paragraphs.json: field 'Lyon-1\.content': Field required"):
        read_rows(tmp_path, ROW, paragraphs={"Lyon-1": {"title": "Lyon"}})


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_sample_row_has_its_supporting_passages(split):
    for question in read(DATA / f"{split}.json"):
        assert set(question.supporting) <= {passage.id for passage in question.passages}


@pytest.mark.parametrize(("split", "rows", "with_passages"), [("train", 463, 18), ("dev", 137, 137)])
def test_the_release_reads_whole(split, rows, with_passages):
    path = SHARED / f"{split}.json"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    questions = read(path)
    assert (len(questions), sum(bool(question.passages) for question in questions)) == (rows, with_passages)
