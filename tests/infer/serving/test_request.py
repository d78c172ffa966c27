"""What chat interfaces send besides a question: tools, images, other roles."""

import openai
import pytest
from helpers.chat_client import ask

SEARCH = {"type": "function", "function": {"name": "web_search", "parameters": {"type": "object", "properties": {}}}}
QUESTION = {"role": "user", "content": "Who made Cedar Falls?"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


OFFERED = {"tools": [SEARCH]}
LEFT_OPEN = [None, "auto", "none", {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}]


@pytest.mark.parametrize(
    "offer",
    [
        *(OFFERED | ({"tool_choice": choice} if choice else {}) for choice in LEFT_OPEN),
        {"functions": [SEARCH["function"]], "function_call": "auto"},
    ],
)
def test_tools_that_are_only_offered_are_ignored(pipeline, served, offer):
    reply = ask(served(pipeline), **offer)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Cleo Marn", "stop")
    assert set(offer) <= set(reply.refinery["ignored"])


@pytest.mark.parametrize(
    ("key", "demand"),
    [
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "web_search"}}),
        ("tool_choice", {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}),
        ("function_call", {"name": "web_search"}),
    ],
)
def test_a_demanded_call_is_refused(pipeline, served, key, demand):
    with pytest.raises(openai.BadRequestError, match=f"{key}: demands a call, and a decoder calls no tools") as raised:
        ask(served(pipeline), **OFFERED, **{key: demand})
    assert raised.value.body["param"] == key


def test_an_image_is_refused_in_plain_words(pipeline, served):
    with pytest.raises(openai.BadRequestError) as raised:
        ask(served(pipeline), messages=[{"role": "user", "content": [{"type": "text", "text": "Who is this?"}, IMAGE]}])
    fault = raised.value.body
    assert fault["message"] == "messages: the last one holds a part of type 'image_url', and a decoder reads only text. Ask without it."
    assert fault["param"] == "messages.0.content"


def test_an_image_of_an_earlier_turn_does_not_end_the_conversation(pipeline, served):
    pipeline.llm.script = lambda text: "Who made Cedar Falls?" if text.endswith("Standalone question:") else "Cleo Marn"
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Who is this?"}, IMAGE]},
        {"role": "assistant", "content": "?"},
        QUESTION,
    ]
    reply = ask(served(pipeline), messages=messages)
    assert (reply.choices[0].message.content, reply.refinery["ignored"]) == ("Cleo Marn", ["parts that are not text"])


def test_a_picture_of_an_earlier_turn_may_be_as_large_as_interfaces_send_them(pipeline, served):
    pipeline.llm.script = lambda text: "Cleo Marn"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBO" * (7 << 20)}}
    shown = [{"role": "user", "content": [{"type": "text", "text": "Who is this?"}, picture]}, {"role": "assistant", "content": "?"}]
    assert ask(served(pipeline), messages=[*shown, QUESTION]).choices[0].message.content == "Cleo Marn"


def test_another_models_tool_calls_in_the_conversation_are_passed_over(pipeline, served):
    call = {"id": "c", "type": "function", "function": {"name": "web_search", "arguments": "{}"}}
    called = [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "SECRET"}]
    assert ask(served(pipeline), messages=[*called, QUESTION]).choices[0].message.content == "Cleo Marn"
    assert not any("SECRET" in call.text for call in pipeline.llm.calls)
