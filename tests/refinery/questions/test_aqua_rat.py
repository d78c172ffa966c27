import pytest

ROW = {"question": "What is 2 + 3?", "options": ["A)4", "B) 5", "C)6", "D)7", "E)none"], "rationale": "Add.", "correct": "B"}


def test_choices_lose_their_letters(read_rows):
    (question,) = read_rows("aqua_rat", ROW, name="dev.json")
    assert (question.id, question.choices, question.answers) == ("dev_0", ["4", "5", "6", "7", "none"], ["B"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"correct": "F"}, "field 'correct': 'F' is not one of A, B, C, D, E."),
        ({"options": ["A)4", "C)5"]}, "field 'options': 'C)5' does not start with 'B)'."),
        ({"options": "A)4"}, "field 'options': Input should be a valid list."),
    ],
)
def test_a_malformed_row_is_named_by_its_line(fault, changes, said):
    assert fault("aqua_rat", ROW, ROW | changes) == f"rows.jsonl:2: {said}"


@pytest.mark.parametrize("split", ["test", "dev"])
def test_the_release_reads_whole(release, split):
    questions = release("aqua_rat", f"aqua_rat/{split}.json").values()
    assert (len(questions), {len(question.choices) for question in questions}) == (152, {5})


def test_a_row_of_the_release(release):
    question = release("aqua_rat", "aqua_rat/dev.json")["dev_0"]
    assert question.text.startswith("A group of 5 friends were to contribute equally")
    assert (question.choices, question.answers) == (["$203", "$202", "$209", "$205", "$204"], ["E"])
