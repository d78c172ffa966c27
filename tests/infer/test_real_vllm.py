"""vLLM itself in this process, on CPU: with the Python that has it, and a finished `refinery demo` that REFINERY_VLLM_DEMO names."""

import asyncio
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.trees import trees

from infer.pipeline import Pipeline
from infer.recipe import pipeline_recipe
from infer.shared_models import Parts
from refinery.contract.records import Question, read_records
from refinery.contract.trace import Prediction
from refinery.llms.served.completions.api import CompletionReply
from refinery.llms.vllm import completions
from refinery.runtime.concurrency.background_loop import run_anywhere
from train.commands.merge import merge

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("vllm") is None or "REFINERY_VLLM_DEMO" not in os.environ,
        reason="this Python has no vLLM, or REFINERY_VLLM_DEMO names no finished demo",
    ),
]
QUESTIONS = 16
# Of a question at depth 2 with three actions: 12 queries and 13 answers. By the authors' definitions the prompt and the evidence of each
# search are scored too.
TEXTS, SCORED = 25, 13
ROLES = ("self_knowledge", "relevance", "decomposition")


@pytest.fixture
def demo(monkeypatch) -> Path:
    """The folder of a finished demo."""
    for name, value in {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}.items():
        monkeypatch.setenv(name, value)
    return Path(os.environ["REFINERY_VLLM_DEMO"])


@pytest.fixture
def replies(monkeypatch) -> list[CompletionReply]:
    """Every reply of vLLM's engine."""
    found: list[CompletionReply] = []
    read = completions.completion_of

    def recorded(*arguments) -> CompletionReply:
        found.append(read(*arguments))
        return found[-1]

    monkeypatch.setattr(completions, "completion_of", recorded)
    return found


@pytest.fixture
def answer(demo) -> Callable[..., list[Prediction]]:
    """Answer the demo's first test questions; models of equal configurations are loaded once."""
    parts, questions = Parts(), read_records(demo / "data" / "test.jsonl", Question)[:QUESTIONS]

    async def answers(pipeline: Pipeline) -> list[Prediction]:
        return await asyncio.gather(*map(pipeline.outcome, questions))

    def run(**values) -> list[Prediction]:
        retriever = {"passages": str(demo / "data" / "passages.jsonl")}
        shared = {"retriever": retriever, "passages_per_query": 2, "max_new_tokens": 12}
        pipeline = Pipeline(pipeline_recipe(shared | values, where="test"))
        pipeline.load(parts)
        found = run_anywhere(answers(pipeline))
        assert [prediction.failed for prediction in found] == [None] * QUESTIONS
        return found

    return run


def test_trees_are_those_of_our_engine(answer, demo, replies, tmp_path, record_property):
    merged = str(merge(demo / "models" / "refinement", tmp_path / "merged"))
    for fidelity, needed in (("fixed", TEXTS), ("official", TEXTS + SCORED)):
        rq_rag = {"decoder": "rq_rag", "options": {"fidelity": fidelity, "max_depth": 2, "max_query_tokens": 24}}
        replies.clear()
        on_vllm = answer(**rq_rag, llm={"engine": "vllm", "base": merged, "max_model_len": 1024})
        here = answer(**rq_rag, llm={"base": merged})
        found, expected = trees(on_vllm), trees(here)
        assert found.keys() == expected.keys()
        differences = [abs(one - two) for path in expected for one, two in zip(found[path], expected[path], strict=True)]
        assert max(differences) < 1e-4
        calls, prefill = (sum(getattr(prediction.cost, name) for prediction in on_vllm) for name in ("calls", "prefill_tokens"))
        assert calls == len(replies) <= 1.1 * needed * QUESTIONS
        sent, cached = (sum(getattr(reply, name) for reply in replies) for name in ("num_prompt_tokens", "num_cached_tokens"))
        assert 0 < cached == sent - prefill
        record_property(fidelity, {"paths": len(found), "difference": max(differences), "calls": calls, "sent": sent, "cached": cached})
        for name, predictions in (("vllm", on_vllm), ("here", here)):
            record_property(
                f"{fidelity} {name}", [sum(p.cost.prefill_tokens for p in predictions), sum(p.cost.decode_tokens for p in predictions)]
            )


def test_ra_isf_is_that_of_our_engine_with_adapters_by_name(answer, demo, replies, record_property):
    import refinery.demo

    ra_isf = {"decoder": "ra_isf", "options": {"sub_questions": "sequential", "unresolved": "from_passages", "cycles": "stop"}}
    adapters = {role: str(demo / "models" / role) for role in ROLES}
    model = {"base": str(Path(refinery.demo.__file__).with_name("checkpoint")), "adapters": adapters}
    on_vllm = answer(**ra_isf, llm={"engine": "vllm", "max_model_len": 1024, **model})
    here = answer(**ra_isf, llm=model)
    assert [prediction.answer for prediction in on_vllm] == [prediction.answer for prediction in here]
    assert {reply.model for reply in replies} == {model["base"], *adapters.values()}
    record_property("ra_isf", {"calls": len(replies), "cached": sum(reply.num_cached_tokens for reply in replies)})
