"""Objects and lists in a text: found from the last backwards, with work that grows with the text and no faster."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from refinery.llms.served.replies.json_reply import read_reply
from refinery.llms.served.replies.json_spans import balanced_parts

PROSE = st.text(st.characters(exclude_characters='{}[]"'))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)
HOSTILE = st.lists(
    st.sampled_from(["{", "}", "[", "]", '"', "'", "\\", ":", ",", '{"q":', "a", "1", " ", "\n", "- ", "q:"]), min_size=1, max_size=6
)


class Queries(BaseModel):
    q: list[str]


def parts(text: str, brackets: str = "{}") -> list[str]:
    return [text[start:end] for start, end in balanced_parts(text, brackets)]


@given(st.lists(st.tuples(PROSE, OBJECTS), max_size=5), PROSE)
@example([("", {"{": None}), ("", {'"': None})], "")
def test_objects_are_found_first_between_prose_whatever_their_strings_hold(said, end):
    text = "".join(prose + json.dumps(value) for prose, value in said) + end
    found = parts(text)
    assert [json.loads(part) for part in found[: len(said)]] == [value for _, value in reversed(said)]
    assert not any(is_json(part) for part in found[len(said) :])  # what a bracket in a string seems to begin


def is_json(part: str) -> bool:
    try:
        json.loads(part)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "brackets", "expected"),
    [
        ('{"a": {"b": 1}} {"c": "}"}', "{}", ['{"c": "}"}', '{"a": {"b": 1}}']),
        ('{unclosed {"a": 1}', "{}", ['{"a": 1}']),
        ('{5" tall} {"a": 1}', "{}", ['{"a": 1}']),
        ('{5" tall {"a": "}", "b": 1}', "{}", ['{5" tall {"a": "}', '{"a": "}", "b": 1}']),
        ("} {", "{}", []),
        ('[1] says [{"a": [2]}]', "[]", ['[{"a": [2]}]', "[1]"]),
    ],
)
def test_the_outermost_parts_are_found_from_the_last_backwards(text, brackets, expected):
    assert parts(text, brackets) == expected


@given(HOSTILE)
def test_the_parts_of_a_hostile_text_are_no_more_to_read_than_a_few_times_the_text(pieces):
    piece = "".join(pieces)
    text = piece * (20_000 // len(piece))
    for brackets in ("{}", "[]"):
        assert sum(map(len, parts(text, brackets))) <= 9 * len(text)


@pytest.mark.parametrize(
    "piece", ["{", '{"', "{}", '{"a":', '"\\', '{"a":[', "[1],", "\n", "- ", " ", "{'a':", "['", "query: ", '{"q":["a"]}', "{'q':['a']}"]
)
def test_a_reply_of_a_megabyte_is_read_or_refused(piece):
    said = read_or_refused(piece * (1_000_000 // len(piece)))  # in time: it takes hours if the time is quadratic
    assert said == ["a"] or 0 < len(said[0]) < 500


def read_or_refused(text: str) -> list[str]:
    """The queries that were read, or what is wrong with the text."""
    try:
        return read_reply(text, Queries)[0].q
    except ValueError as error:
        return [str(error)]
