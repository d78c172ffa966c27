import pytest

ROW = {
    "id": "7-1",
    "question": {"stem": "Dune is a", "choices": [{"text": "film", "label": "A"}, {"text": "city", "label": "B"}]},
    "answerKey": "A",
}


def test_the_fact_is_the_one_passage_and_supports_nothing(read_rows):
    (question,) = read_rows("openbookqa", ROW | {"fact1": "films have directors"})
    assert [(passage.id, passage.text) for passage in question.passages] == [("7-1:fact1", "films have directors")]
    assert (question.supporting, question.answers) == (None, ["A"])


def test_the_hub_calls_the_question_a_stem(read_rows):
    row = {"id": "7-1", "question_stem": "Dune is a", "choices": {"text": ["film", "city"], "label": ["A", "B"]}, "answerKey": "B"}
    assert read_rows("openbookqa", row) == [question.model_copy(update={"answers": ["B"]}) for question in read_rows("openbookqa", ROW)]


def test_a_malformed_row_is_named_by_its_line(fault):
    assert fault("openbookqa", ROW, ROW | {"fact1": 7}) == "rows.jsonl:2: field 'fact1': Input should be a valid string."


@pytest.mark.parametrize(
    ("name", "rows"), [("openbookqa/train", 240), ("openbookqa/test", 299), ("schema_fixtures/openbookqa_train_complete", 3)]
)
def test_the_release_reads_whole(release, name, rows):
    assert len(release("openbookqa", f"{name}.jsonl")) == rows


def test_a_row_of_the_release(release):
    question = release("openbookqa", "schema_fixtures/openbookqa_train_complete.jsonl")["4-980"]
    assert (question.text, question.choices[3], question.answers) == (
        "The sun is responsible for train",
        "plants sprouting, blooming and wilting",
        ["D"],
    )
    assert question.passages[0].text == "the sun is the source of energy for physical cycles on Earth"
