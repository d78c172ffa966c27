"""Replies whose meaning nobody doubts, in another form than the schema's."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from refinery.llms.served.fitted_reply import validated


class Label(BaseModel):
    label: Literal["relevant", "irrelevant"]


class Known(BaseModel):
    answer: Literal["yes", "no"]
    sure: bool = False


class Numbers(BaseModel):
    relevant: list[int]


class Pair(BaseModel):
    question: str
    answer: str | None = None


class Questions(BaseModel):
    sub_questions: list[str]


class Pairs(BaseModel):
    pairs: list[Pair]


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ('{"label": "Relevant"}', Label(label="relevant")),
        ('{"Label": " relevant. "}', Label(label="relevant")),
        ('{"answer": "Yes.", "sure": "no"}', Known(answer="yes", sure=False)),
        ('{"answer": true, "sure": "True"}', Known(answer="yes", sure=True)),
        ('{"relevant": 1}', Numbers(relevant=[1])),
        ('{"relevant": "[1, 3]"}', Numbers(relevant=[1, 3])),
        ('{"relevant": ["[1]", "3."]}', Numbers(relevant=[1, 3])),
        ('{"Sub-questions": ["Who?"]}', Questions(sub_questions=["Who?"])),
        ('{"sub_questions": [{"question": "Who?"}, {"question": "When?"}]}', Questions(sub_questions=["Who?", "When?"])),
        ('{"sub_questions": {"1": "Who?", "2": "When?"}}', Questions(sub_questions=["Who?", "When?"])),
        ('{"sub_questions": "1. Who?\\n2. When?"}', Questions(sub_questions=["Who?", "When?"])),
        ('{"pairs": [{"Question": "When?", "answer": 1874}]}', Pairs(pairs=[Pair(question="When?", answer="1874")])),
    ],
)
def test_what_is_meant_is_read(reply, meant):
    assert validated(reply, type(meant)) == meant


@pytest.mark.parametrize(
    ("reply", "schema"),
    [
        ('{"label": "partially relevant"}', Label),
        ('{"label": "relevant", "Label": "irrelevant"}', Pair),
        ('{"answer": "maybe"}', Known),
        ('{"answer": 1}', Known),
        ('{"relevant": "the first"}', Numbers),
        ('{"relevant": "1.5"}', Numbers),
        ('{"sub_questions": [{"question": "Who?", "why": "It is asked."}]}', Questions),
        ('{"sub_questions": true}', Questions),
    ],
)
def test_what_may_mean_something_else_is_refused(reply, schema):
    with pytest.raises(ValidationError):
        validated(reply, schema)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_a_reply_that_fits_is_left_as_it_is(value):
    class Anything(BaseModel):
        value: object

    whole = Anything(value=value).model_dump_json()
    assert validated(whole, Anything) == Anything.model_validate_json(whole)
