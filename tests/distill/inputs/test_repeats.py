import pytest

from distill.inputs.repeats import Repeats
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Question


def reasons(*rows):
    """Why each (text, split) is rejected, in their order; None for those that are kept."""
    repeats, found = Repeats(), []
    for number, (text, split) in enumerate(rows):
        question = Question(id=f"q{number}", text=text, split=split)
        try:
            found.append(repeats(question, [question]))
        except RejectedRow as error:
            found.append(error.reason)
    return found


@pytest.mark.parametrize("again", ["who directed dune", "Who directed  the Dune??", "Who directed Dune?"])
def test_the_same_words_are_a_duplicate(again):
    assert reasons(("Who directed Dune?", "train"), (again, "train")) == [None, "duplicate"]


@pytest.mark.parametrize(
    ("text", "again", "reason"),
    [
        ("In which year was the film Dune released?", "In which year was the film Dune first released?", "near_duplicate"),
        ("Who was the first mayor of the city of Lyon?", "Who was the very first mayor of the city of Lyon?", "near_duplicate"),
        ("Which country is the director of the film Dune from?", "Which country is the director of the film Solaris from?", None),
        ("How many people lived in the city of Lyon in 1990?", "How many people lived in the city of Lyon in 1999?", None),
        ("Who directed Dune?", "Who produced Dune?", None),
    ],
)
def test_nearly_the_same_words_are_a_near_duplicate_unless_they_name_something_else(text, again, reason):
    assert reasons((text, "train"), (again, "train")) == [None, reason]


def test_a_training_question_that_a_held_out_one_asks_is_told_apart():
    held_out = ("In which year was the film Dune released?", "test")
    again = [("In which year was the film Dune released?", "train"), ("In which year was the film Dune first released?", "train")]
    assert reasons(held_out, *again) == [None, "repeats_held_out", "repeats_held_out"]
    assert reasons(held_out, (held_out[0], "validation")) == [None, "duplicate"]


def test_a_rejected_question_rejects_no_other():
    first, second, third = (f"Who was the {extra}mayor of the old city of Lyon then?" for extra in ("", "best ", "best known former "))
    assert reasons((first, "train"), (second, "train"), (third, "train")) == [None, "near_duplicate", None]
