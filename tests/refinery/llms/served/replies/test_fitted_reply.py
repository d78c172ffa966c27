"""Values that say the same in another form are read; those that may mean something else stay malformed."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from refinery.llms.served.replies.json_reply import read_reply


class Label(BaseModel):
    label: Literal["relevant", "irrelevant"]


class Known(BaseModel):
    answer: Literal["yes", "no"]


class Step(BaseModel):
    action: Literal["rewrite", "give_up"]


class Numbers(BaseModel):
    relevant: list[int]


class Parts(BaseModel):
    sub_questions: list[Annotated[str, Field(min_length=1)]]


class Right(BaseModel):
    right: bool


class Answer(BaseModel):
    answer: str
    missing: str | None = None


class Pair(BaseModel):
    question: str
    answer: str


class Pairs(BaseModel):
    questions: list[Pair]


class Score(BaseModel):
    score: float


TWO = ["Which one?", "When was #1 built?"]
ONE_PAIR = [Pair(question="When?", answer="1874")]


@pytest.mark.parametrize(
    ("reply", "schema", "value"),
    [
        ('{"label": "Relevant"}', Label, "relevant"),
        ('{"label": " RELEVANT. "}', Label, "relevant"),
        ('{"Label": "**irrelevant**"}', Label, "irrelevant"),
        ('{"label": "not relevant"}', Label, "irrelevant"),
        ('{"label": ["relevant"]}', Label, "relevant"),
        ('{"label": {"value": "relevant"}}', Label, "relevant"),
        ('{"answer": "Yes."}', Known, "yes"),
        ('{"answer": true}', Known, "yes"),
        ('{"answer": "false"}', Known, "no"),
        ('{"action": "Give up"}', Step, "give_up"),
        ('{"relevant": 1}', Numbers, [1]),
        ('{"relevant": "1"}', Numbers, [1]),
        ('{"relevant": "[1]"}', Numbers, [1]),
        ('{"relevant": ["[1]", "Passage 3"]}', Numbers, [1, 3]),
        ('{"relevant": "1, 3 and 4"}', Numbers, [1, 3, 4]),
        ('{"relevant": "None."}', Numbers, []),
        ('{"relevant": "-1"}', Numbers, [-1]),
        ('{"relevant": [2.0]}', Numbers, [2]),
        ('{"Sub-questions": ["Which one?", "When was #1 built?"]}', Parts, TWO),
        ('{"subQuestions": [{"question": "Which one?"}, {"step": 2, "question": "When was #1 built?"}]}', Parts, TWO),
        ('{"sub_questions": {"1": "Which one?", "2": "When was #1 built?"}}', Parts, TWO),
        ('{"sub_questions": "1. Which one?\\n2. When was #1 built?"}', Parts, TWO),
        ('{"sub_questions": "Which one?"}', Parts, ["Which one?"]),
        ('{"right": "Yes"}', Right, True),
        ('{"right": 0}', Right, False),
        ('{"answer": 1874}', Answer, "1874"),
        ('{"answer": 1.10}', Answer, "1.10"),
        ('{"answer": {"text": "Lyon"}}', Answer, "Lyon"),
        ('{"questions": {"Question": "When?", "answer": 1874}}', Pairs, ONE_PAIR),
        ('{"arguments": {"Questions": [{"question": "When?", "answer": ["1874"]}]}}', Pairs, ONE_PAIR),
        ("{'Label': 'Relevant',}", Label, "relevant"),
        ('["1", "[3]"]', Numbers, [1, 3]),
        ('{"score": "0.5"}', Score, 0.5),
    ],
)
def test_another_form_of_the_same_value_is_fitted(reply, schema, value):
    assert next(iter(read_reply(reply, schema)[0].__dict__.values())) == value


@pytest.mark.parametrize(
    ("reply", "schema"),
    [
        ('{"label": "partially relevant"}', Label),
        ('{"label": "relevant or irrelevant"}', Label),
        ('{"label": "not irrelevant"}', Label),
        ('{"label": ["relevant", "irrelevant"]}', Label),
        ('{"label": {"not": "relevant"}}', Label),
        ('{"Label": "relevant", "LABEL": "irrelevant"}', Label),
        ('{"label": true}', Label),
        ('{"answer": "yes and no"}', Known),
        ('{"answer": null}', Known),
        ('{"relevant": true}', Numbers),
        ('{"relevant": [true, true]}', Numbers),
        ('{"relevant": {"1": 1, "2": 0}}', Numbers),
        ('{"relevant": "1-3"}', Numbers),
        ('{"relevant": "passages: none"}', Numbers),
        ('{"relevant": "not 1"}', Numbers),
        ('{"relevant": [1.5]}', Numbers),
        ('{"relevant": null}', Numbers),
        ('{"sub_questions": "The question cannot be broken down."}', Parts),
        ('{"sub_questions": "Which one? When was it built?"}', Parts),
        ('{"sub_questions": [{"question": "Which one?", "needed": false}]}', Parts),
        ('{"sub_questions": [{"not_a_question": "Lyon"}]}', Parts),
        ('{"sub_questions": [{"question": "Which one?", "why": "It is needed."}]}', Parts),
        ('{"sub_questions": [1, 2]}', Parts),
        ('{"right": "partly"}', Right),
        ('{"right": 2}', Right),
        ('{"answer": true}', Answer),
        ('{"answer": null}', Answer),
        ('{"answer": ["Lyon", "Oslo"]}', Answer),
        ('{"questions": "When? 1874"}', Pairs),
        ('{"score": "high"}', Score),
    ],
)
def test_a_value_that_may_mean_something_else_stays_malformed(reply, schema):
    with pytest.raises(ValueError, match="field"):
        read_reply(reply, schema)


def test_how_a_reply_was_read_tells_fitted_values_from_requested_ones():
    assert [read_reply(reply, Label)[1] for reply in ('{"label": "relevant"}', '{"label": "Relevant"}')] == ["object", "fitted"]
    assert read_reply('{"answer": "Lyon", "Missing": 3}', Answer)[0] == Answer(answer="Lyon")
