from collections import Counter

ROW = {
    "qid": 32000,
    "question": "which films did torvel make?",
    "level": "i.i.d.",
    "answer": [
        {"answer_type": "Entity", "answer_argument": "m.1", "entity_name": "Dune"},
        {"answer_type": "Value", "answer_argument": 4},
        {"answer_type": "Entity", "answer_argument": "m.2"},
    ],
}


def test_an_answer_is_its_name_or_else_its_value(read_rows):
    (question,) = read_rows("grailqa", ROW)
    assert (question.id, question.answers, question.type) == ("32000", ["Dune", "4", "m.2"], "i.i.d.")


def test_the_public_test_set_has_no_answers(read_rows):
    assert read_rows("grailqa", {key: ROW[key] for key in ("qid", "question")})[0].answers == []


def test_a_malformed_row_is_named_by_its_line(fault):
    said = fault("grailqa", ROW, ROW | {"answer": [{"entity_name": "Dune"}]})
    assert said == "rows.jsonl:2: field 'answer.0.answer_argument': Field required."


def test_the_release_reads_whole(release):
    questions = release("grailqa", "grailqa/grailqa_v1.0_dev.json")
    assert Counter(question.type for question in questions.values()) == {"zero-shot": 176, "i.i.d.": 67, "compositional": 57}
    assert questions["3205088002000"].answers == ["Watt", "Megawatt", "Milliwatt", "Kilowatt"]
