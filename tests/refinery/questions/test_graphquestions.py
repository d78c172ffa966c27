import pytest

ROW = {"qid": 375000201, "question": "what films did torvel make?", "answer": ["Dune", "Velorum", "Dune"]}


@pytest.mark.parametrize("field", ["function", "function_category"])
def test_the_type_is_what_the_query_computes(read_rows, field):
    (question,) = read_rows("graphquestions", ROW | {field: "count"}, name="graphquestions.testing.json")
    assert (question.id, question.type, question.split) == ("375000201", "count", "test")
    assert question.answers == ["Dune", "Velorum"]


def test_a_malformed_row_is_named_by_its_line(fault):
    assert fault("graphquestions", ROW, {"qid": 1, "answer": []}) == "rows.jsonl:2: field 'question': Field required."


def test_the_release_reads_whole(release):
    questions = release("graphquestions", "graphquestions/graphquestions.testing.json")
    assert (len(questions), sum(len(question.answers) for question in questions.values())) == (600, 2641)
    assert questions["350000000"].text == "what is the genre of q magazine?"
    assert questions["350000000"].answers == ["Music magazine"]
