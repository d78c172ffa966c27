"""What a reasoning model thinks is kept apart from what it replies."""

import pytest
from helpers.chat_templates import chat_tokenizer

from refinery.llms.served.protocols.openai_chat import PROTOCOL
from refinery.llms.thinking import read_written, split_thinking


@pytest.mark.parametrize(
    ("text", "thought", "reply"),
    [
        ("<think>Lyon? No.</think>\n\nParis", "Lyon? No.", "Paris"),
        ("Lyon? No.\n</think>\nParis", "Lyon? No.", "Paris"),  # where the template has opened the reasoning
        ("<think>\nLyon? No", "Lyon? No", ""),
        ("Paris", "", "Paris"),
        ("", "", ""),
        ("[THINK]Lyon?[/THINK]Paris", "Lyon?", "Paris"),
        ("◁think▷Lyon?◁/think▷Paris", "Lyon?", "Paris"),
        ("<reasoning>Lyon?", "Lyon?", ""),
        ("Paris, because of <reasoning>this</reasoning>.", "", "Paris, because of <reasoning>this</reasoning>."),
        (
            "<|channel|>analysis<|message|>Lyon?<|end|><|start|>assistant<|channel|>final<|message|>Paris<|return|>",
            "Lyon?",
            "Paris",
        ),
        ("<|channel|>analysis<|message|>Lyon?<|end|><|start|>assistant", "Lyon?<|end|><|start|>assistant", ""),
    ],
)
def test_a_reply_is_what_follows_the_reasoning(text, thought, reply):
    assert split_thinking(text) == (thought, reply)


@pytest.mark.parametrize("special", [False, True])
def test_the_reasonings_end_is_found_where_decoding_would_drop_it(special):
    tokenizer = chat_tokenizer("qwen_3")
    if special:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    token_ids = tokenizer("<think>Lyon? No.</think>\n\nParis<|im_end|>")["input_ids"]
    assert read_written(token_ids, tokenizer) == ("Lyon? No.", "Paris")


@pytest.mark.parametrize(
    "message",
    [
        {"content": "Paris", "reasoning_content": "Lyon? No."},
        {"content": "Paris", "reasoning": "Lyon? No."},
        {"content": "<think>Lyon? No.</think>Paris"},
    ],
)
def test_an_endpoints_reasoning_is_no_part_of_its_reply(message):
    reply = PROTOCOL.parse({"choices": [{"message": message}]})
    assert (reply.text, reply.reasoning) == ("Paris", "Lyon? No.")
