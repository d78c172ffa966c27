"""What a reasoning model thinks is kept apart from what it replies."""

import pytest
from helpers.chat_templates import chat_tokenizer, reasoning_tokenizer

from benchmarks.infer.world import build_tokenizer
from refinery.contract.thought_marks import THOUGHT_MARKS
from refinery.llms.served.protocols.openai_chat import PROTOCOL
from refinery.llms.thinking import opened_by, read_written, split_thinking


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
        ("<|channel|>final<|message|>Paris<|return|>", "", "Paris"),
    ],
)
def test_a_reply_is_what_follows_the_reasoning(text, thought, reply):
    assert split_thinking(text) == (thought, reply)


def test_an_unknown_token_is_no_mark():
    """A tokenizer of whole words reads every mark as its unknown token, which a model may write, too."""
    tokenizer = build_tokenizer(64)
    assert tokenizer("<think>", add_special_tokens=False)["input_ids"] == [tokenizer.unk_token_id]
    written = tokenizer("<unk> w1 <unk> w2", add_special_tokens=False)["input_ids"]
    assert read_written(written, tokenizer, prompt=[]) == ("", "w1 w2")


@pytest.mark.parametrize("special", [False, True])
def test_the_reasonings_end_is_found_where_decoding_would_drop_it(special):
    tokenizer = chat_tokenizer("qwen_3")
    if special:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    token_ids = tokenizer("<think>Lyon? No.</think>\n\nParis<|im_end|>")["input_ids"]
    assert read_written(token_ids, tokenizer, prompt=[]) == ("Lyon? No.", "Paris")


ANALYSIS, FINAL = THOUGHT_MARKS[-1]
R1, GPT_OSS = "<|assistant|><think>\n", "<|start|>assistant"


@pytest.mark.parametrize(
    ("prompt", "written", "thought", "reply"),
    [
        (R1, "Lyon? I", "Lyon? I", ""),
        (R1, "<think>\nLyon? I", "Lyon? I", ""),  # some write again what the prompt has opened
        (R1, "Lyon? No.</think>\n\nParis<|return|>", "Lyon? No.", "Paris"),
        ("<|assistant|><think>\n\n</think>\n\n", "Paris<|return|>", "", "Paris"),
        ("<|assistant|>[THINK]", "Lyon? I", "Lyon? I", ""),  # no token of this tokenizer
        ("<|assistant|>[THINK]", "Lyon? No.[/THINK]Paris<|return|>", "Lyon? No.", "Paris"),
        (GPT_OSS, f"{ANALYSIS}Lyon? I", "Lyon? I", ""),
        (GPT_OSS, f"{ANALYSIS}Lyon? No.<|end|><|start|>assistant", "Lyon? No.", ""),
        (GPT_OSS, f"{ANALYSIS}Lyon? No.<|end|><|start|>assistant{FINAL}Paris<|return|>", "Lyon? No.", "Paris"),
        (GPT_OSS, f"{FINAL}Paris<|return|>", "", "Paris"),
        (f"{GPT_OSS}{FINAL}", "Paris<|return|>", "", "Paris"),
    ],
)
def test_reasoning_and_reply_are_told_apart_by_tokens_and_by_what_the_prompt_opens(prompt, written, thought, reply):
    tokenizer = reasoning_tokenizer("unused")
    before, ids = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, written))
    assert read_written(ids, tokenizer, prompt=before) == (thought, reply)
    text = tokenizer.decode(ids, skip_special_tokens=True)  # as a server without token ids sends it
    if prompt != GPT_OSS:
        assert split_thinking(text.strip(), opened=opened_by(before, tokenizer)) == (thought, reply)


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
