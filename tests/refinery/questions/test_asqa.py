import json

import pytest

ROW = {
    "ambiguous_question": "Who is it?",
    "qa_pairs": [
        {"question": "Who directed Dune?", "short_answers": ["Torvel", "M. Torvel"], "context": "No context provided", "wikipage": None},
        {"question": "Who was born in Lyon?", "short_answers": ["Hall"], "context": "Hall was born in Lyon.", "wikipage": "Hall"},
    ],
    "wikipages": [{"title": "Dune", "url": "https://example.org/dune"}],
    "annotations": [
        {"long_answer": "It may be Torvel or Hall. ", "knowledge": [{"content": "Torvel made it.", "wikipage": "Dune"}]},
        {"long_answer": "Either.", "knowledge": [{"content": None, "wikipage": "Dune"}]},
    ],
}
FEEDBACK = {"text": "unused", "question": "Who is it?", "answer": ["Torvel."], "passages": [{"content": "Torvel.", "wikipage": "Dune"}]}


@pytest.fixture
def read_release(read_rows):
    return lambda release: read_rows("asqa", text=json.dumps(release), name="ASQA.json")


def test_readings_keep_their_short_answers_and_the_answers_are_long(read_release):
    (question,) = read_release({"dev": {"-7": ROW}})
    assert (question.id, question.split, question.answers) == ("-7", "dev", ["It may be Torvel or Hall.", "Either."])
    assert [(reading.text, reading.answers) for reading in question.disambiguations] == [
        ("Who directed Dune?", ["Torvel", "M. Torvel"]),
        ("Who was born in Lyon?", ["Hall"]),
    ]


def test_contexts_and_looked_up_texts_are_passages_that_support_nothing(read_release):
    (question,) = read_release({"dev": {"-7": ROW}})
    assert [(passage.id, passage.title, passage.text) for passage in question.passages] == [
        ("-7:0", "Hall", "Hall was born in Lyon."),
        ("-7:1", "Dune", "Torvel made it."),
    ]
    assert question.supporting is None


def test_one_file_holds_all_splits(read_release):
    assert [question.split for question in read_release({"train": {"1": ROW}, "dev": {"2": ROW}})] == ["train", "dev"]


def test_qa_feedback_has_no_readings(read_rows):
    (question,) = read_rows("asqa", text=json.dumps([FEEDBACK]), name="qa_feedback_dev.json")
    assert (question.id, question.answers, question.disambiguations) == ("dev_0", ["Torvel."], None)


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ({"dev": {"-7": {**ROW, "annotations": None}}}, "dev -7: field 'annotations': Input should be a valid list."),
        ({"dev": {"-7": []}}, "field 'dev.-7': Input should be a valid dictionary."),
        ([FEEDBACK, {**FEEDBACK, "answer": "x"}], "row 2: field 'answer': Input should be a valid list."),
    ],
)
def test_a_malformed_row_is_named(fault, release, said):
    assert fault("asqa", text=json.dumps(release), name="ASQA.json") == f"ASQA.json: {said}"


def test_the_original_layout_reads_whole(release):
    questions = release("asqa", "schema_fixtures/ASQA.json")
    assert [question.split for question in questions.values()].count("train") == 2
    question = questions["-7013890438520559398"]
    assert question.text == "Who has the highest goals in world football?"
    assert question.disambiguations[0].answers == ["Daei", "Ali Daei"]


def test_qa_feedback_reads_whole(release):
    questions = release("asqa", "asqa/qa_feedback_dev.json")
    assert (len(questions), sum(len(question.passages or []) for question in questions.values())) == (180, 420)
    assert questions["dev_0"].answers == [
        "Season 8 episode 7 of The Office's guest star was Lindsey Broad playing the role of Cathy Simms."
    ]
