import json
import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from refinery.llms.served.replies.json_reply import begins_with_object, ends_with_object, parse_json_reply, read_reply, reads_as_refusal


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


class Label(BaseModel):
    label: Literal["relevant", "irrelevant"]


class Numbers(BaseModel):
    relevant: list[int]


@pytest.mark.parametrize(
    ("reply", "label", "reading"),
    [
        ('{"label": "relevant"}', "relevant", "object"),
        ('The form is {"label": "..."}. My answer: {"label": "irrelevant"}', "irrelevant", "object"),
        ('{"label": "relevant"}\n{"label": "irrelevant"}', "irrelevant", "object"),
        ("{'label': 'relevant',}", "relevant", "mended"),
        ("Irrelevant. The paragraph is about his son.", "irrelevant", "words"),
        ("**Answer:** **relevant**", "relevant", "words"),
        ("Label: relevant", "relevant", "words"),
        ("Irrelevant: the paragraph is about his son. It is irrelevant.", "irrelevant", "words"),
        ("The paragraph is not relevant to the question because it is too long.", "irrelevant", "words"),
        ("This paragraph is relevant to the question.", "relevant", "words"),
        ('The label is "irrelevant"', "irrelevant", "words"),
        ("Not relevant.", "irrelevant", "words"),
    ],
)
def test_a_label_is_read_as_a_person_would(reply, label, reading):
    read, how = read_reply(reply, Label)
    assert (read.label, how) == (label, reading)


class Pair(BaseModel):
    question: str
    answer: str


class Pairs(BaseModel):
    pairs: list[Pair]


class Optional(BaseModel):
    label: str = ""


@pytest.mark.parametrize(
    ("reply", "reading"),
    [
        ('{"name": "answer", "arguments": {"label": "relevant"}}', "object"),
        ('<tool_call>{"arguments": {"label": "relevant"}}</tool_call>', "object"),
        ('[{"label": "irrelevant"}, {"label": "relevant"}]', "object"),
        ("the set {1, 2} gives {'label': 'relevant'}", "mended"),
        ('{"label": "relevant"} {"confidence": 1}', "object"),
    ],
)
def test_an_object_is_found_inside_and_beside_others(reply, reading):
    assert read_reply(reply, Label) == (Label(label="relevant"), reading)


def test_an_example_inside_an_answer_is_not_the_answer():
    with pytest.raises(ValueError, match="field 'label': Input should be 'relevant' or 'irrelevant'"):
        read_reply('{"example": {"label": "relevant"}, "label": "maybe"}', Label)


def test_a_list_of_objects_is_read_without_its_object():
    assert read_reply('Here:\n[{"question": "a", "answer": "b"}]', Pairs) == (Pairs(pairs=[Pair(question="a", answer="b")]), "list")


def test_a_note_in_brackets_is_no_list():
    assert read_reply("1. Who [sic]?\n2. When [1]?", Queries)[0].queries == ["Who [sic]?", "When [1]?"]


def test_a_reply_without_an_object_is_not_an_object_of_defaults():
    with pytest.raises(ValueError, match="there is no JSON object in it"):
        read_reply("I do not know.", Optional)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('So: {"label": "relevant"}', '{"label": "relevant"}'),
        ('So:\n```json\n{"label": "relevant"}\n```\n', '{"label": "relevant"}'),
        ('Perhaps {"label": "relevant"}, or not.', None),
        ('So: {"label": "maybe"}', None),
        ("", None),
    ],
)
def test_an_answer_at_the_end_of_reasoning_is_found(text, found):
    assert ends_with_object(text, Label) == found


@pytest.mark.parametrize(
    "rest",
    ["\n" * 40, " \t" * 30, "\n```\n\n", '\n{"label": "relevant"}' * 100 + '\n{"label": "rel', "\n\nThe paragraph is about his son, who"],
    ids=["line breaks", "blanks", "a fence", "the object again", "prose"],
)
def test_an_object_that_a_cut_reply_begins_with_is_whole(rest):
    assert begins_with_object(f'```json\n{{"label": "relevant"}}{rest}', Label) == '{"label": "relevant"}'


@pytest.mark.parametrize(
    "reply",
    [
        '{"label": "rel',
        '{"label": "maybe"}\n\n',
        'The form is {"label": "relevant"}, so',
        '{"label": "relevant"}\nNo: {"label": "irre',
        '{"pairs": [{"label": "relevant"}, {"la',
        "",
    ],
)
def test_an_object_that_was_cut_or_may_be_taken_back_is_not_whole(reply):
    assert begins_with_object(reply, Label) is None


@pytest.mark.parametrize(
    "reply",
    [
        "It may be relevant.",
        "relevant or irrelevant",
        "Relevant, or irrelevant.",
        "Relevance: high",
        "irrelevantly",
        "yes",
        "The paragraph is not irrelevant.",
        "The paragraph is relevant to the king, and irrelevant to the question.",
        "The answer is relevant work of the king.",
        "Relevant. However, it is not sufficient on its own, so I label it irrelevant.",
        "The passage is relevant to the question. But it does not answer it; label: irrelevant",
        "Relevant.\n\nOn reflection it is not really relevant.",
        "Answer: relevant\nAnswer: irrelevant",
    ],
)
def test_words_that_state_no_label_or_take_it_back_are_not_read(reply):
    with pytest.raises(ValueError, match="there is no JSON object in it"):
        read_reply(reply, Label)


@pytest.mark.parametrize(
    ("reply", "shape", "expected"),
    [
        ('["Who?", "When?"]', Queries, ["Who?", "When?"]),
        ("Sub-questions:\n1. Who?\n2) When?", Queries, ["Who?", "When?"]),
        ("- Who?\n- When?", Queries, ["Who?", "When?"]),
        ("Sure! Here are the **queries**:\n\n```\n1. Who?\n\n2. When?\n```", Queries, ["Who?", "When?"]),
        ("## Search queries\n* Who?\n* When?", Queries, ["Who?", "When?"]),
        ("```json\n[3]", Numbers, [3]),
        ("The relevant passages are [1, 3].", Numbers, [1, 3]),
        ("The relevant ones: [1, 3]", Numbers, [1, 3]),
    ],
)
def test_a_list_is_read_without_its_braces(reply, shape, expected):
    read, how = read_reply(reply, shape)
    assert (list(read.model_dump().values()), how) == ([expected], "list")


@pytest.mark.parametrize(
    "reply",
    [
        "Passage [3] answers the question; passages [1] and [2] do not.",
        "[3] is sufficient on its own.\n\n[1] only names the town.",
        "The relevant ones are [3], because [1] is about the town.",
        "Only passage 3. (The text of [1] has no year.)",
        "The irrelevant ones: [1]",
        "Not relevant: [1]",
        "[3] [1]",
        "```json\n[3]\n```\nThe other passages [1, 2] are about the town.",
    ],
)
def test_numbers_in_brackets_in_prose_are_not_read(reply):
    with pytest.raises(ValueError, match="there is no JSON object in it"):
        read_reply(reply, Numbers)


@pytest.mark.parametrize(
    "reply",
    [
        "This question cannot be broken down, because:\n1. It is about one building.\n2. It needs one fact.",
        "I need more information:\n- Which lighthouse do you mean?\n- Which century?",
        'The question names ["Norhavn", "lighthouse"] and asks for a year.',
        "1. Which lighthouse is it?\n2. When was #1 built?\n\nThe second one may not be needed.",
        "1. Which lighthouse is it?\n   - This names the building.\n2. When was #1 built?",
        "1. Which lighthouse\nis it?\n2. When was #1 built?",
    ],
)
def test_items_in_prose_are_not_read(reply):
    with pytest.raises(ValueError, match="there is no JSON object in it"):
        read_reply(reply, Queries)


def test_numbers_are_not_guessed_from_a_numbered_text():
    with pytest.raises(ValueError, match="there is no JSON object in it"):
        read_reply("1. The first passage is relevant.", Numbers)
