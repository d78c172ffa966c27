"""The conversation in a request, as the decoder reads it."""

import pytest
from helpers.chat_client import ask

from infer.serving.messages import Message, history_of


def messages(*turns):
    return [Message(role=role, content=content) for role, content in turns]


@pytest.mark.parametrize(
    ("turns", "history"),
    [
        ([], None),
        ([("system", "Be brief.")], None),
        ([("assistant", "Hello! Ask me.")], None),
        ([("user", "a"), ("assistant", "b")], ["a", "b"]),
        ([("assistant", "Hello!"), ("user", "a"), ("tool", "x"), ("assistant", "b")], ["a", "b"]),
        ([("user", "a"), ("user", "b"), ("assistant", "c")], ["a", "", "b", "c"]),
        ([("user", "a"), ("assistant", "b"), ("assistant", "c")], ["a", "b\nc"]),
        ([("user", "a")], ["a", ""]),
        ([("user", "a"), ("assistant", None)], ["a", ""]),
    ],
)
def test_turns_alternate(turns, history):
    assert history_of(messages(*turns)) == history


REASONED = [
    '<details type="reasoning" done="true" duration="2">\n<summary>Thought for 2 seconds</summary>\n> Searched\n</details>\nElm',
    "<think>\nSearched\n</think>\n\nElm",
    'Elm\n<details type="reasoning" done="false">\n> Searched',
]


@pytest.mark.parametrize("said", REASONED)
def test_reasoning_is_no_part_of_what_was_said(said):
    assert history_of(messages(("user", "a"), ("assistant", said))) == ["a", "Elm"]


def test_a_users_own_markup_stays():
    assert history_of(messages(("user", REASONED[0]), ("assistant", "b"))) == [REASONED[0], "b"]


def test_a_megabyte_of_openings_is_read_at_once():
    assert history_of(messages(("user", "a"), ("assistant", '<details type="reasoning"' * 40_000))) == ["a", ""]


def test_reasoning_beside_a_message_is_not_shown_to_the_model(pipeline, served):
    pipeline.llm.script = lambda text: "Who made Amber Road?" if text.endswith("Standalone question:") else "Ada Quist"
    said = {"role": "assistant", "content": REASONED[0], "reasoning_content": "SECRET", "reasoning": "SECRET"}
    ask(served(pipeline), messages=[{"role": "user", "content": "Which?"}, said, {"role": "user", "content": "Who made the other one?"}])
    condensed = pipeline.llm.texts("generate")[0]
    assert "User: Which?\nAssistant: Elm\nLast question:" in condensed
    assert not any("SECRET" in call.text or "Searched" in call.text for call in pipeline.llm.calls)
