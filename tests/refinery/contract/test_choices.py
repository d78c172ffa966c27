from refinery.contract.choices import choice_letters, choice_question
from refinery.contract.records import Question


def test_choices_are_listed_as_the_authors_list_them():
    question = Question(id="q", text="Water is", choices=["wet", "dry"])
    assert choice_question(question) == "Water is?\nPlease choose from following options:\nA: wet\nB: dry"
    assert choice_letters(question) == ["A", "B"]


def test_a_question_mark_is_not_doubled():
    assert choice_question(Question(id="q", text="Is it wet?", choices=["yes"])).startswith("Is it wet?\n")
