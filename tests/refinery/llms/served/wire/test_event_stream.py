"""Server-sent events: told from other bodies, and joined only if their end was sent."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest
from refinery.llms.served.protocols.openai_chat import PROTOCOL
from refinery.llms.served.transport.chat_request import parse_chat
from refinery.llms.served.wire.event_stream import EventStream, read_events


def sent(*values: object, end: str = "data: [DONE]\n\n") -> bytes:
    return ("".join(f"event: x\ndata: {json.dumps(value, ensure_ascii=False)}\n\n" for value in values) + end).encode()


def test_the_data_of_events_is_read_in_order():
    events = read_events(b": comment\n\n" + sent({"a": 1}, {"b": 2}))
    assert isinstance(events, EventStream)
    assert (list(events), events.ended) == ([{"a": 1}, {"b": 2}], True)


@pytest.mark.parametrize("content", [b"", b"<html></html>", b'{"a": 1}', b"data: {broken\n\n", b"database is down"])
def test_another_body_is_no_stream(content):
    assert read_events(content) is None


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.lists(st.integers(0, 200), max_size=5))
def test_a_text_comes_back_however_it_is_cut(text, cuts):
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    events = read_events(sent(*({"choices": [{"delta": {"content": piece}}]} for piece in pieces)))
    assert events is not None
    assert PROTOCOL.join(events)["choices"][0]["message"]["content"] == text


def test_a_stream_without_an_end_is_not_joined():
    assert PROTOCOL.join(read_events(sent({"choices": [{"delta": {"content": "Ly"}}]}, end=""))) is None


def test_a_stream_of_another_form_refuses_its_own_request():
    deep = json.loads('{"a":' * 300 + "1" + "}" * 300)
    events = read_events(sent([1], "a", {"choices": [{"delta": {"content": [deep], "function_call": {"arguments": {}}}}]}))
    with pytest.raises(RefusedRequest):
        parse_chat(events, EndpointConfig(model="m"))


def test_an_error_in_a_stream_is_found():
    assert read_events(sent({"error": {"message": "Overloaded"}})).fault().message == "Overloaded"
