import asyncio

import pytest

from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.segments import Segment, encode
from refinery.llms.fake import Call, FakeLLM, FakeTokenizer


def test_it_writes_what_its_script_says_after_the_text_so_far():
    llm = FakeLLM(lambda text: f" reply to {text}")
    generation = asyncio.run(llm.context("Lyon?").generate(max_new_tokens=9))
    assert (generation.text, generation.stopped_by) == ("reply to Lyon?", "stop")
    assert llm.calls == [Call("generate", "Lyon?")]


def test_a_long_reply_is_cut():
    generation = asyncio.run(FakeLLM(lambda text: "one two three").context("?").generate(max_new_tokens=3))
    assert (generation.text, generation.stopped_by, len(generation.logprobs)) == ("one two three", "length", 3)


@pytest.mark.parametrize(("reply", "probs"), [(" know", [1.0, 0.0]), ({" know": 0.3, " unknow": 0.7}, [0.3, 0.7])])
def test_it_chooses_as_its_script_says(reply, probs):
    chosen = asyncio.run(FakeLLM(lambda text: reply).context("?").label_probs([" know", " unknow"], adapter="self_knowledge"))
    assert list(chosen.values()) == probs


@pytest.mark.parametrize("text", ["", " ", "a  b\n", "\n\nTitle: [A_Response] x ", "[EOS]"])
def test_text_comes_back_and_holds_no_control_token(text):
    tokenizer = FakeTokenizer()
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert not set(ids) & {tokenizer.convert_tokens_to_ids(token.token) for token in RQ_RAG}


def test_rows_can_be_encoded_with_it():
    row = encode(
        [Segment("Q? ", "prompt"), Segment("[A_Response]", "control_token", True), Segment(" Lyon", "answer", True)], FakeTokenizer()
    )
    assert [label == -100 for label in row.labels] == [True, True, False, False]
