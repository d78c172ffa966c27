"""vLLM itself as a teacher in this process, on CPU, with the Python that has it."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

import refinery.demo
from distill.__main__ import main
from refinery.contract.records import KnowledgeLabel, read_records

TEMPLATE = (
    "{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


@pytest.fixture
def instruct(tmp_path, monkeypatch) -> Path:
    """The demo's base model with a chat template, whose replies are valid only because they must be."""
    for name, value in {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}.items():
        monkeypatch.setenv(name, value)
    shutil.copytree(Path(refinery.demo.__file__).with_name("checkpoint"), tmp_path / "instruct")
    (tmp_path / "instruct" / "chat_template.jinja").write_text(TEMPLATE)
    return tmp_path / "instruct"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("vllm") is None, reason="this Python has no vLLM")
def test_a_schema_holds_a_model_that_cannot_follow_it(mock_recipe, instruct, tmp_path, read_metrics):
    teacher = {"transport": "vllm", "model": str(instruct), "base_url": None, "max_model_len": 1024}
    path = mock_recipe(None, count=8, task="self_knowledge", options={"by": "teacher"}, teacher=teacher)
    assert main([str(path)]) == 0
    rows = read_records(tmp_path / "run" / "train.jsonl", KnowledgeLabel)
    assert len(rows) == 8
    assert all(row.provenance.num_prompt_tokens > 0 for row in rows)
    assert read_metrics()["teacher"]["replies_read_as"] == {"object": 8}
    assert main([str(path), "--resume"]) == 0
    assert read_metrics()["teacher"]["calls"] == 8  # the run was finished
