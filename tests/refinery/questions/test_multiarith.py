import pytest

ROW = {"iIndex": 2, "sQuestion": " Torvel made 2 films and then 3. How many? ", "lEquations": ["X=(2.0+3.0)"], "lSolutions": [5.0]}


@pytest.mark.parametrize(("solution", "answer"), [(5.0, "5"), (5, "5"), (2.5, "2.5"), (1_000_000.0, "1000000")])
def test_a_whole_number_is_written_as_one(read_rows, solution, answer):
    (question,) = read_rows("multiarith", ROW | {"lSolutions": [solution]})
    assert (question.id, question.text, question.answers) == ("2", "Torvel made 2 films and then 3. How many?", [answer])


def test_a_malformed_row_is_named_by_its_line(fault):
    assert fault("multiarith", ROW, ROW | {"lSolutions": 5.0}) == "rows.jsonl:2: field 'lSolutions': Input should be a valid list."


def test_the_release_reads_whole(release):
    questions = release("multiarith", "multiarith/MultiArith.json")
    assert len(questions) == 360
    assert questions["2"].text.startswith("Luke was trying to expand his game collection.")
    assert questions["2"].answers == ["2"]
