"""Conversations of any shape as training rows: the tokens and masks that TRL gives them, and what is refused."""

import pytest
from helpers.tool_templates import template, tool_tokenizer

from refinery.contract.conversation import ChatMessage, ChatRow, chat_segments_of
from refinery.contract.segments import IGNORED_LABEL, encode
from refinery.errors import UnwritableError

TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 3, "note": 'x"\n'}}}
CHATS = {
    "one turn": [("user", "Who?"), ("assistant", "Ann.")],
    "two turns": [("system", "Be brief."), ("user", "Who?"), ("assistant", "Ann."), ("user", "Where?"), ("assistant", "Lyon, 中文 {}")],
    "a question last": [("user", "Who?"), ("assistant", "Ann."), ("user", "Where?")],
    "a tool": [("user", "3+1?"), ("assistant", CALL), ("tool", "4"), ("assistant", "It is 4."), ("user", "Sure?"), ("assistant", "Yes.")],
}


def row_of(name, **values):
    def message(role, said):
        return ChatMessage(role=role, tool_calls=[said]) if isinstance(said, dict) else ChatMessage(role=role, content=said)

    tools = [TOOL] if name == "a tool" else None
    return ChatRow(question_id="q", messages=[message(*one) for one in CHATS[name]], tools=tools, **values)


def trained_text(row, tokenizer):
    encoded = encode(chat_segments_of(row, tokenizer), tokenizer)
    return tokenizer.decode([label for label in encoded.labels if label != IGNORED_LABEL])


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("family", ["qwen2_5_training", "qwen3_instruct_2507_training", "lfm2_v2_training"])
def test_tokens_and_masks_are_those_of_trl(name, family):
    tokenizer, row = tool_tokenizer(family), row_of(name)
    mine = encode(chat_segments_of(row, tokenizer), tokenizer)
    messages = [message.model_dump(exclude_none=True) for message in row.messages]
    theirs = tokenizer.apply_chat_template(messages, tools=row.tools, return_dict=True, return_assistant_tokens_mask=True)
    length, end = len(mine.input_ids), tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert mine.input_ids == theirs["input_ids"][:length]
    trained = [label for label in mine.labels if label != IGNORED_LABEL]
    expected = [token for token, counts in zip(theirs["input_ids"], theirs["assistant_masks"], strict=True) if counts]
    line = tokenizer("\n")["input_ids"]
    assert [token for token in expected if [token] != line] == [token for token in trained if [token] != line]
    assert trained.count(end) == sum(message.role == "assistant" for message in row.messages)


def test_only_what_the_assistant_says_is_trained():
    assert trained_text(row_of("two turns"), tool_tokenizer("qwen2_5")) == "Ann.<|im_end|>Lyon, 中文 {}<|im_end|>"


def test_messages_of_a_prompt_are_only_read():
    assert trained_text(row_of("two turns", read=4), tool_tokenizer("qwen2_5")) == "Lyon, 中文 {}<|im_end|>"


def test_what_is_said_makes_no_special_token():
    tokenizer = tool_tokenizer("qwen2_5")
    messages = [ChatMessage(role="user", content="<|im_end|>"), ChatMessage(role="assistant", content="<|im_start|>")]
    ids = encode(chat_segments_of(ChatRow(question_id="q", messages=messages), tokenizer), tokenizer).input_ids
    marks = [tokenizer.convert_tokens_to_ids(mark) for mark in ("<|im_start|>", "<|im_end|>")]
    assert [ids.count(mark) for mark in marks] == [3, 3]  # the template's own system message, and two turns


def test_two_texts_are_trained_as_they_stand():
    tokenizer = tool_tokenizer("qwen2_5")
    encoded = encode(chat_segments_of(ChatRow(question_id="q", plain=("2 + 2 =", " 4")), tokenizer), tokenizer)
    assert tokenizer.decode(encoded.input_ids) == "2 + 2 = 4<|im_end|>"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"messages": [ChatMessage(role="user", content="Who?")]}, "no message of the assistant"),
        ({"tools": [TOOL | {"note": "<|im_end|>"}]}, r"contains the special token '<\|im_end\|>'"),
        ({"read": 9}, "no message of the assistant"),
    ],
)
def test_a_row_that_cannot_be_written_is_refused(change, fault):
    with pytest.raises(UnwritableError, match=fault):
        chat_segments_of(row_of("one turn").model_copy(update=change), tool_tokenizer("qwen2_5"))


def test_a_conversation_needs_a_template():
    tokenizer = tool_tokenizer("qwen2_5")
    tokenizer.chat_template = None
    with pytest.raises(UnwritableError, match="has no chat template"):
        chat_segments_of(row_of("one turn"), tokenizer)


def test_a_template_that_rejects_the_row_says_why():
    tokenizer = tool_tokenizer("qwen2_5")
    tokenizer.chat_template = template("gemma")
    with pytest.raises(UnwritableError, match="does not write this row .*System role not supported"):
        chat_segments_of(row_of("two turns"), tokenizer)
