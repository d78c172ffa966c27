import pytest

from refinery.metrics.closed import choice_accuracy, yesno_accuracy


@pytest.mark.parametrize(
    "prediction", ["B", " B", "B\n", "(B)", "B.", "B: glaciers", "B) glaciers", "The answer is B.", "it is A. No, it is B", "Answer: B"]
)
def test_a_stated_letter_is_read(prediction):
    assert (choice_accuracy(prediction, ["B"]), choice_accuracy(prediction, ["A"])) == (1, 0)


@pytest.mark.parametrize("prediction", ["", "glaciers", "Because of it", "A bear is big", "b", "The list: A, B", "this B", "is Boston"])
def test_a_letter_in_passing_is_not(prediction):
    assert [choice_accuracy(prediction, [letter]) for letter in "ABC"] == [0, 0, 0]


def test_numeric_labels_are_letters():
    assert (choice_accuracy("C", ["3"]), choice_accuracy("E", ["5"])) == (1, 1)


@pytest.mark.parametrize(
    ("prediction", "said"),
    [
        ("Yes", "yes"),
        ("yes, they are. No doubt", "yes"),
        ("No.", "no"),
        ("TRUE", "yes"),
        ("It is false", "no"),
        ("So the answer is yes.", "yes"),
    ],
)
def test_the_first_yes_or_no_counts(prediction, said):
    other = "no" if said == "yes" else "yes"
    assert (yesno_accuracy(prediction, [said]), yesno_accuracy(prediction, [other])) == (1, 0)
    assert yesno_accuracy(prediction, ["true" if said == "yes" else "False"]) == 1


@pytest.mark.parametrize("prediction", ["", "Perhaps", "Yesterday", "nobody knows", "unknown"])
def test_without_one_it_is_wrong_either_way(prediction):
    assert yesno_accuracy(prediction, ["yes"]) == yesno_accuracy(prediction, ["no"]) == 0
