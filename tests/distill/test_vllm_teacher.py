"""A teacher that vLLM runs in this process, with a double of its engine: rows, records and stored replies as from an endpoint."""

from types import SimpleNamespace

import pytest
from helpers import vllm_double
from helpers.chat_templates import chat_tokenizer, reasoning_tokenizer
from helpers.scripted_server import chat_reply, scripted
from helpers.tiny_llama import saved_llama
from helpers.vllm_double import Engine

from distill.__main__ import main
from distill.teacher.config import TeacherConfig
from refinery.contract.records import Decomposition, read_records
from refinery.llms.served.protocols.base import Chat
from refinery.llms.vllm import chats

REPLY = '{"sub_questions": ["Who directed it?", "Where was #1 born?"]}'


def on_vllm(model: str) -> dict:
    """A teacher in this process, in place of `mock_recipe`'s endpoint."""
    return {"transport": "vllm", "model": model, "base_url": None}


@pytest.fixture
def engines(monkeypatch) -> list[Engine]:
    """The double's engines, which write `REPLY`."""
    monkeypatch.setattr(Engine, "replies", (REPLY,))
    return vllm_double.install(monkeypatch)


@pytest.fixture
def instruct(tmp_path) -> str:
    """The folder of a tiny model with Qwen3's template, which reasons unless it is told not to."""
    return str(saved_llama(tmp_path / "instruct", chat_tokenizer("qwen_3")))


@pytest.fixture
def label(mock_recipe, tmp_path):
    """Label questions with a teacher; gives the exit code and the rows."""

    def run(*, count=3, resume=False, **values) -> tuple[int, list[Decomposition]]:
        path = mock_recipe(None, count=count, **values)
        code, rows = main([str(path), *(["--resume"] if resume else [])]), tmp_path / "run" / "train.jsonl"
        return code, read_records(rows, Decomposition) if rows.exists() else []

    return run


def test_rows_are_those_of_an_endpoint(label, instruct, engines, read_metrics, tmp_path):
    code, rows = label(teacher=on_vllm(instruct))
    assert code == 0
    assert [row.sub_questions for row in rows] == [["Who directed it?", "Where was #1 born?"]] * 3
    assert {row.provenance.model for row in rows} == {instruct}
    assert all(row.provenance.request_ids[0].startswith("refinery-") for row in rows)
    teacher = read_metrics()["teacher"]
    assert (teacher["calls"], teacher["retries"], teacher["models"], teacher["cost_usd"]) == (3, 0, {instruct: 3}, None)
    assert teacher["num_completion_tokens"] == 3 * len(REPLY)
    schemas = [params.structured_outputs.json["properties"].keys() for _, params, _ in engines[0].requests]
    assert [list(keys) for keys in schemas] == [["sub_questions"]] * 3
    assert engines[0].is_shut


def test_replies_of_an_endpoint_with_the_models_name_are_found(label, instruct, engines, tmp_path):
    with scripted(lambda body: (200, chat_reply(REPLY))) as server:
        assert label(teacher={"base_url": server.base_url, "model": instruct})[0] == 0
    (tmp_path / "run").rename(tmp_path / "over_http")
    store = str(tmp_path / "over_http" / "effects.sqlite")
    code, rows = label(store=store, teacher=on_vllm(instruct))
    assert (code, len(rows)) == (0, 3)
    assert engines[0].requests == []


@pytest.mark.parametrize(("thinking", "reasons"), [(None, True), (True, True), (False, False)])
def test_a_template_reasons_as_the_recipe_says(instruct, thinking, reasons):
    tokenizer = chats.chat_tokenizer(TeacherConfig(transport="vllm", model=instruct, enable_thinking=thinking))
    prompt = tokenizer.decode(chats.chat_tokens(Chat((("user", "Who?"),), 9, 0.0), tokenizer))
    assert ("</think>" not in prompt) is reasons
    assert "Who?" in prompt


def test_a_thought_that_the_prompt_opened_is_no_reply():
    tokenizer = reasoning_tokenizer("unused")
    prompt, written = (tokenizer(text)["input_ids"] for text in ("Who?<think>\n", "Lyon? I"))
    output = SimpleNamespace(
        request_id="1",
        prompt_token_ids=prompt,
        num_cached_tokens=0,
        outputs=[SimpleNamespace(text="Lyon? I", token_ids=written, finish_reason="length", logprobs=None)],
    )
    message = chats.completion_json(output, "m", tokenizer)["choices"][0]["message"]
    assert message == {"content": "", "reasoning": "Lyon? I"}


def test_what_a_message_says_is_no_special_token(instruct):
    tokenizer = chats.chat_tokenizer(TeacherConfig(transport="vllm", model=instruct))
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    tokens = chats.chat_tokens(Chat((("user", "Say <|im_end|>."), ("assistant", "No."), ("user", "Why?")), 9, 0.0), tokenizer)
    assert tokens.count(end) == 3


def test_a_chats_parameters_are_those_of_the_recipe():
    config = TeacherConfig(transport="vllm", model="m", top_p=0.5)
    chat = Chat((("user", "Who?"),), 9, 0.7, stop=("\n",), seed=4, token_logprobs=True)
    assert chats.parameters_of(chat, config) == {
        "max_tokens": 9,
        "temperature": 0.7,
        "top_p": 0.5,
        "seed": 4,
        "stop": ["\n"],
        "logprobs": 0,
    }


def test_what_the_recipe_leaves_out_is_the_models_own(label, instruct, engines):
    label(count=1, teacher=on_vllm(instruct))
    _, params, _ = engines[0].requests[0]
    assert (engines[0].arguments.generation_config, params.top_p, params.temperature) == ("auto", 0.8, 0.0)


def test_the_probabilities_of_labels_are_read(mock_recipe, instruct, engines, monkeypatch):
    monkeypatch.setattr(Engine, "replies", ('{"answer": "no"}',))
    with scripted(lambda body: (200, chat_reply('{"answer": "yes"}'))) as strong:
        escalate = {"teacher": {"base_url": strong.base_url, "model": "strong"}, "min_probability": 0.8}
        values = {"task": "self_knowledge", "options": {"by": "teacher"}, "escalate": escalate}
        assert main([str(mock_recipe(None, count=2, teacher=on_vllm(instruct), **values))]) == 0
        assert strong.bodies == []  # every token is certain
    assert all(params.logprobs == 0 for _, params, _ in engines[0].requests)


@pytest.mark.parametrize(
    ("teacher", "said"),
    [
        ({"transport": "vllm"}, "teacher.transport: `base_url` is a key of the other transport; leave it out, or choose that transport"),
        ({"gpu_memory_utilization": 0.5}, "teacher.transport: `gpu_memory_utilization` is a key of the other transport"),
    ],
)
def test_a_key_of_the_other_transport_is_refused(mock_recipe, capsys, teacher, said):
    assert main([str(mock_recipe("http://127.0.0.1:1", teacher=teacher))]) == 2
    assert said in capsys.readouterr().err


def test_batch_jobs_are_refused(mock_recipe, capsys):
    path = mock_recipe(None, transport="batch", teacher=on_vllm("m"))
    assert main([str(path)]) == 2
    assert "Batch jobs are for endpoints, and vLLM runs the teacher in this process. Set it to live." in capsys.readouterr().err


def test_without_vllm_the_extra_is_named(label, instruct, capsys):
    code, rows = label(teacher=on_vllm(instruct))
    assert (code, rows) == (2, [])
    assert "teacher.transport: vLLM is not installed. Install it: pip install " in capsys.readouterr().err


def test_a_model_without_a_template_is_refused(label, tiny_bases, engines, capsys):
    code, _ = label(teacher=on_vllm(str(tiny_bases["tied"])))
    assert code == 2
    assert "has no chat template, so it cannot be asked by chat. Name an instruct model." in capsys.readouterr().err
