"""What a question tells OpenTelemetry: its calls and searches under it, with tokens, and none of its texts."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from helpers.collector import collecting
from helpers.scripted_server import chat_reply, scripted
from helpers.spans import told, tree

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from refinery.contract.records import Passage, Question, write_records

PASSAGES = [Passage(id="p", title="Lyon", text="Lyon is a secret city in France.")]
QUESTION = Question(id="q1", text="Where is the secret Lyon?")


@pytest.fixture
def outcomes(tmp_path):
    """The predictions of questions by a decoder over an endpoint that answers with `reply`."""

    def answer(reply, *questions, decoder="rag", **values):
        write_records(tmp_path / "passages.jsonl", PASSAGES)

        async def run(pipeline):
            found = await asyncio.gather(*map(pipeline.outcome, questions))
            await pipeline.close()
            return found

        with scripted(lambda body: reply) as server:
            endpoint = {"base_url": server.base_url, "model": "m", "max_tries": 1}
            recipe = {"decoder": decoder, "endpoint": endpoint, "retriever": {"passages": tmp_path / "passages.jsonl"}}
            pipeline = Pipeline(PipelineRecipe.model_validate(recipe | values))
            pipeline.load()
            return asyncio.run(run(pipeline))

    return answer


def test_a_question_has_its_search_and_its_call_under_it(outcomes, spans):
    outcomes((200, chat_reply("In secret France.")), QUESTION)
    assert tree(spans()) == {"": ["invoke_workflow rag"], "invoke_workflow rag": ["retrieval bm25", "chat m"]}
    question, call = (next(span for span in spans() if span.name == name) for name in ("invoke_workflow rag", "chat m"))
    assert question.attributes["refinery.question_id"] == "q1"
    assert dict(call.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 3,
    }
    assert call.kind.name == "CLIENT"
    assert "secret" not in told(spans())


def test_questions_that_are_answered_together_have_a_trace_each(outcomes, spans):
    questions = [QUESTION.model_copy(update={"id": f"q{i}", "text": f"Where is the secret Lyon {i}?"}) for i in range(5)]
    found = outcomes((200, chat_reply("France")), *questions, decoder="self_criticism")
    by_trace = {}
    for span in spans():
        by_trace.setdefault(span.context.trace_id, []).append(span)
    assert len(by_trace) == 5
    assert {sum(span.name == "chat m" for span in trace) for trace in by_trace.values()} == {one.cost.calls for one in found}


def test_a_call_that_fails_says_how(outcomes, spans):
    outcomes((400, {"error": {"message": "the secret filter", "code": "content_filter"}}), QUESTION)
    call = next(span for span in spans() if span.name == "chat m")
    assert (call.status.status_code.name, call.attributes["error.type"]) == ("ERROR", "refused")
    assert "secret" not in told(spans())


def test_a_run_tells_a_collector_how_far_it_is_what_failed_and_what_it_cost(tmp_path):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    questions = [QUESTION.model_copy(update={"id": f"q{i}", "text": f"Where is Lyon {i}?"}) for i in range(4)]
    write_records(tmp_path / "questions.jsonl", questions)
    with collecting() as collector, scripted(lambda body: (500 if "Lyon 2" in str(body) else 200, chat_reply("France"))) as server:
        endpoint = {"base_url": server.base_url, "model": "m", "max_tries": 1, "price": {"prompt": 1000.0, "completion": 1000.0}}
        recipe = {"decoder": "direct", "endpoint": endpoint, "questions": ["questions.jsonl"], "output_dir": "run"}
        (tmp_path / "recipe.json").write_text(json.dumps(recipe))
        command, environment = [sys.executable, "-m", "infer", "recipe.json"], {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert "1 of 4 questions failed (no_reply 1)" in done.stderr
    paid = json.loads((tmp_path / "run" / "metrics.json").read_text())["endpoints"]["model"]
    told_of_run = {
        name.removeprefix("refinery.run."): value for (name, *about), value in collector.values.items() if about == ["infer direct"]
    }
    assert told_of_run == {"done": 4, "planned": 4, "failed": 1, "cost_usd": pytest.approx(paid["cost_usd"])}
    assert [span.name for span in collector.spans].count("invoke_workflow direct") == 4
