import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from refinery.llms.served.json_reply import parse_json_reply, reads_as_refusal


class Queries(BaseModel):
    queries: list[str]


@given(st.lists(st.text(), max_size=3))
def test_any_text_comes_back(queries):
    assert parse_json_reply(json.dumps({"queries": queries}), Queries).queries == queries


@pytest.mark.parametrize(
    "reply",
    ['```json\n{"queries": ["a"]}\n```', 'Sure! {"queries": ["a"]} Anything else?', "{'queries': ['a'],}"],
    ids=["fenced", "with small talk", "Python's quotes"],
)
def test_an_object_is_found_and_its_punctuation_mended(reply):
    assert parse_json_reply(reply, Queries).queries == ["a"]


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("I would ask for a.", "there is no JSON object in it"),
        ("", "there is no JSON object in it"),
        ('{"queries": ["a", "b', "Invalid JSON"),
        ('{"queries": "a"}', "field 'queries': Input should be a valid array"),
        ('{"question": "a"}', "field 'queries': Field required"),
        ('{"queries": [1]}', "field 'queries.0': Input should be a valid string"),
        ('{"queries": __import__("os").getcwd()}', "field 'queries'"),
        ('{"queries": ' + "[" * 5000 + "]" * 5000 + "}", "field 'reply': Invalid JSON: recursion limit"),
    ],
)
def test_a_reply_that_does_not_fit_says_why(reply, fault):
    with pytest.raises(ValueError, match=re.escape(fault)):
        parse_json_reply(reply, Queries)


def test_half_a_surrogate_pair_which_no_file_can_hold_is_replaced():
    assert parse_json_reply('{"queries": ["\\ud800 a"]}', Queries).queries == ["\ufffd a"]


@pytest.mark.parametrize(
    ("reply", "refuses"),
    [("I'm sorry, I can't help with that.", True), ("I cannot say.", True), ('{"answer": "Sorry, "}', False), ("Sorrento", False)],
)
def test_a_refusal_is_told_from_an_answer(reply, refuses):
    assert reads_as_refusal(reply) == refuses
