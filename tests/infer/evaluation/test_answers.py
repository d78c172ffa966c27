"""Questions with their predictions, read in any order without holding them."""

from collections.abc import Iterable

import pytest

from infer.evaluation.answers import Answers
from infer.evaluation.rows_by_id import RowsById
from refinery.contract.records import Question
from refinery.contract.trace import Cost, Prediction, prediction_line
from refinery.errors import RunDirError
from refinery.runtime.files.jsonl import write_lines

COST = Cost(calls=1, retrievals=0, prefill_tokens=5, decode_tokens=2)
QUESTIONS = [Question(id=f"q{number}", text=f"Who is {number}?") for number in range(5)]


def predicted(question: Question) -> Prediction:
    return Prediction(question_id=question.id, question=question.text, answer=f"{question.id}!", trace=[], cost=COST)


@pytest.fixture
def path(tmp_path):
    write_lines(tmp_path / "predictions.jsonl", (prediction_line(predicted(question)) for question in QUESTIONS))
    return tmp_path / "predictions.jsonl"


def found(questions: Iterable[Question], path) -> dict[str, str | None]:
    return {question.id: prediction and prediction.answer for question, prediction in Answers(questions, path)}


@pytest.mark.parametrize("questions", [QUESTIONS, QUESTIONS[::-1], QUESTIONS[2:] + QUESTIONS[:2]])
def test_every_question_gets_its_prediction_in_any_order(path, questions):
    assert found(questions, path) == {question.id: f"{question.id}!" for question in QUESTIONS}


def test_nothing_is_indexed_as_long_as_the_order_is_that_of_the_file(path, monkeypatch):
    monkeypatch.setattr(RowsById, "_indexed", None)  # would not be callable
    assert len(found(QUESTIONS, path)) == 5


@pytest.mark.parametrize("absent", [0, 2, 5])
def test_a_question_without_a_prediction_gets_none(path, absent):
    new = Question(id="new", text="Who?")
    asked = [*QUESTIONS[:absent], new, *QUESTIONS[absent:]]
    assert found(asked, path) == {question.id: None if question is new else f"{question.id}!" for question in asked}


@pytest.mark.parametrize("left", range(5))
def test_a_prediction_to_a_question_that_is_not_asked_is_refused(path, left):
    with pytest.raises(RunDirError, match=f"question 'q{left}' was answered, but it is not among the questions"):
        found([question for number, question in enumerate(QUESTIONS) if number != left], path)


def test_of_two_predictions_to_a_question_the_last_counts_where_they_are_looked_up(tmp_path):
    again = predicted(QUESTIONS[0]).model_copy(update={"answer": "later"})
    write_lines(tmp_path / "predictions.jsonl", map(prediction_line, [*map(predicted, QUESTIONS), again]))
    assert found(QUESTIONS[::-1], tmp_path / "predictions.jsonl")["q0"] == "later"
