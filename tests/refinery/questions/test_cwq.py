from collections import Counter

ROW = {"ID": "WebQTrn-1", "question": "Who made Dune?", "compositionality_type": "composition"}


def test_every_answer_brings_its_aliases(read_rows):
    answers = [
        {"answer": "Torvel", "aliases": ["M. Torvel"], "answer_id": "m.1"},
        {"answer": None, "aliases": ["Hall"], "answer_id": "m.2"},
    ]
    (question,) = read_rows("cwq", ROW | {"answers": answers})
    assert (question.answers, question.type) == (["Torvel", "M. Torvel", "Hall"], "composition")


def test_one_answer_a_row_is_read_too(read_rows):
    assert read_rows("cwq", ROW | {"answer": "Torvel"})[0].answers == ["Torvel"]


def test_the_released_test_set_has_no_answers(read_rows):
    assert read_rows("cwq", ROW)[0].answers == []


def test_a_malformed_row_is_named_by_its_line(fault):
    said = fault("cwq", ROW, ROW | {"answers": [{"aliases": []}]})
    assert said == "rows.jsonl:2: field 'answers.0.answer': Field required."


def test_the_release_reads_whole(release):
    questions = release("cwq", "cwq/ComplexWebQuestions_test.json")
    assert Counter(question.type for question in questions.values()) == {
        "conjunction": 294,
        "composition": 233,
        "superlative": 38,
        "comparative": 35,
    }
    question = questions["WebQTrn-465_02714e184571525b8c510d20f11fc886"]
    assert question.text == "What all is there to do for fun in the nation represented by the anthem L-Innu Malti?"
    assert question.answers == ["Fort Rinella"]
