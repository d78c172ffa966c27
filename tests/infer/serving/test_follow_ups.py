"""A question of a conversation: what it means is searched and answered."""

import re

import pytest
from helpers.chat_client import ask

from refinery.llms.fake import FakeLLM

CONVERSATION = [
    {"role": "system", "content": "Speak like a pirate."},
    {"role": "user", "content": "Is Amber Road or Cedar Falls by Cleo Marn?"},
    {"role": "assistant", "content": "Cedar Falls"},
    {"role": "user", "content": "Who made the other one?"},
]


class ShortLLM(FakeLLM):
    """Reads no more than 400 words."""

    context_limit = 400


def follows_up(rewritten):
    """A model that rewrites a follow-up as `rewritten`, and answers with the director that it reads of."""
    return lambda text: rewritten if text.endswith("Standalone question:") else re.search(r"by (\w+ \w+)", text)[1]


def test_a_follow_up_is_searched_and_answered_as_what_it_means(pipeline, served):
    pipeline.llm.script = follows_up("Who made Amber Road?\nLast question: Who made it?")
    reply = ask(served(pipeline), messages=CONVERSATION)
    condensed, *asked = pipeline.llm.texts("generate")
    assert "User: Is Amber Road or Cedar Falls by Cleo Marn?\nAssistant: Cedar Falls\nLast question: Who made the other one?\n" in condensed
    assert [step["question"] for step in reply.refinery["trace"]] == ["Who made the other one?", *["Who made Amber Road?"] * 2]
    assert reply.refinery["trace"][0]["text"] == "Who made Amber Road?"
    assert (reply.refinery["cost"]["calls"], len(asked)) == (2, 1)
    assert not any("pirate" in call.text for call in pipeline.llm.calls)


@pytest.mark.parametrize("messages", [CONVERSATION[-1:], [CONVERSATION[0], CONVERSATION[-1]], [CONVERSATION[2], CONVERSATION[-1]]])
def test_the_first_question_of_a_conversation_is_asked_as_it_is(pipeline, served, messages):
    pipeline.llm.script = lambda text: "Cleo Marn"
    assert [step["name"] for step in ask(served(pipeline), messages=messages).refinery["trace"]] == ["retrieve", "answer_with_passages"]


def test_a_follow_up_that_the_model_does_not_rewrite_is_asked_as_it_is(pipeline, served):
    pipeline.llm.script = follows_up("")
    trace = ask(served(pipeline), messages=[*CONVERSATION[:3], {"role": "user", "content": "Who made Cedar Falls?"}]).refinery["trace"]
    assert [step["name"] for step in trace] == ["condense", "fault", "retrieve", "answer_with_passages"]
    assert trace[-1]["question"] == "Who made Cedar Falls?"


def test_a_conversation_longer_than_the_models_context_keeps_its_end(pipeline, served):
    pipeline.llm = ShortLLM(follows_up("Who made Cedar Falls?"))
    long = [{"role": role, "content": f"{role} {number} " + "so " * 99} for number in range(40) for role in ("user", "assistant")]
    last = {"role": "user", "content": "And who made Cedar Falls?"}
    assert ask(served(pipeline), messages=[*long, last]).choices[0].message.content == "Cleo Marn"
    condensed = pipeline.llm.texts("generate")[0]
    assert len(condensed.split()) < 400
    assert "assistant 39" in condensed
    assert "assistant 9 " not in condensed
