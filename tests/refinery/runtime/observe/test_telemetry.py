"""What OpenTelemetry is told of runs and calls, where the environment says so, and what it costs where it does not."""

import asyncio
import os
import subprocess
import sys

import pytest
from helpers.collector import collecting
from helpers.scripted_server import chat_reply, scripted
from helpers.spans import told

from refinery.llms.build import llm_over
from refinery.llms.weights.checkpoint import load_base
from refinery.runtime.observe import telemetry
from refinery.tasks.self_knowledge import KNOW, UNKNOW, knowledge_prompt


def run(*arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=clean | environment)


def distill(recipe, **environment):
    return run("-m", "distill", str(recipe), **environment)


def python(script, **environment):
    return run("-c", script, **environment)


@pytest.fixture
def teacher():
    """Refuses one of the films."""
    with scripted(lambda body: (200, chat_reply("I cannot help." if "film 3?" in str(body) else chat_text(body)))) as server:
        yield server


def chat_text(body):
    return '{"sub_questions": ["Who directed it?", "Where was #1 born?"]}'


def test_a_run_sends_its_traces_and_metrics_to_a_collector(mock_recipe, teacher):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    price = {"prompt": 1000.0, "completion": 1000.0}
    with collecting() as collector:
        recipe = mock_recipe(teacher.address, count=8, teacher={"price": price}, max_failure_share=0.5)
        done = distill(recipe, OTEL_EXPORTER_OTLP_ENDPOINT=collector.address)
    assert done.returncode == 0, done.stderr
    title, model = "distill decomposition", "mock"
    run = {name.removeprefix("refinery.run."): value for (name, *about), value in collector.values.items() if about == [title]}
    assert run == {"done": 8, "planned": 8, "failed": 1, "cost_usd": pytest.approx(0.012 * len(teacher.bodies))}
    calls = {(name, *about[-2:]) for name, *about in collector.values if model in about}
    assert ("gen_ai.client.operation.duration", "openai", model) in calls
    rows, asked = ([span for span in collector.spans if span.name == name] for name in ("invoke_workflow decomposition", f"chat {model}"))
    assert (len(rows), len(asked)) == (8, len(teacher.bodies))
    assert {span.parent_span_id for span in asked} == {span.span_id for span in rows}
    assert {one["service.name"] for one in collector.resources} == {"refinery"}
    assert all(one["service.instance.id"] for one in collector.resources)


def test_a_collector_that_is_not_there_does_not_disturb_a_run(mock_recipe, teacher):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    done = distill(mock_recipe(teacher.address, count=2), OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TIMEOUT="1")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_spans_are_printed_where_the_console_is_named(mock_recipe, teacher):
    pytest.importorskip("opentelemetry.sdk.trace")
    done = distill(mock_recipe(teacher.address, count=2), OTEL_TRACES_EXPORTER="console", OTEL_SERVICE_NAME="labels")
    assert done.stdout.count('"name": "invoke_workflow decomposition"') == 2
    assert '"service.name": "labels"' in done.stdout
    assert '"gen_ai.usage.input_tokens": 9' in done.stdout
    assert "Who directed" not in done.stdout


REFUSED = [
    ({"OTEL_TRACES_EXPORTER": "pigeon"}, "no exporter 'pigeon' of traces. Install the extra: pip install "),
    ({"OTEL_METRICS_EXPORTER": "pigeon"}, "no exporter 'pigeon' of metrics. Install the extra: pip install "),
    ({"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_MAX_QUEUE_SIZE": "1"}, "max_export_batch_size"),
]


@pytest.mark.parametrize(("environment", "reason"), REFUSED)
def test_an_exporter_or_a_setting_that_is_refused_is_a_warning(environment, reason):
    pytest.importorskip("opentelemetry.sdk.trace")
    done = python("from refinery.runtime.observe import telemetry; telemetry.configure()", **environment)
    assert (done.returncode, done.stderr.count(f"no traces and metrics are sent: {reason}")) == (0, 1)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
    ],
)
def test_nothing_is_imported_that_was_not_asked_for(environment):
    script = (
        "import asyncio, sys\n"
        "from refinery.runtime.observe import telemetry\n"
        "telemetry.configure()\n"
        "async def work(): return 1\n"
        "with telemetry.workflow('rag', question_id='q'), telemetry.continuing({}):\n"
        "    asyncio.run(telemetry.call('chat', 'openai', 'm', work(), lambda result: (1, 1)))\n"
        "    asyncio.run(telemetry.search('bm25', 3, work()))\n"
        "telemetry.report_run('a run', dict)\n"
        "telemetry.end_run('a run')\n"
        "print(*(name for name in sys.modules if name.startswith('opentelemetry')))"
    )
    found = python(script, **environment)
    assert (found.returncode, found.stdout.split()) == (0, [])


@pytest.mark.parametrize("family", ["causal", "seq2seq", "classifier"])
def test_a_call_to_a_model_on_this_machine_tells_its_model_and_tokens(spans, tiny_bases, tiny_t5s, tiny_encoder, family):
    base = str({"causal": tiny_bases["tied"], "seq2seq": tiny_t5s["tied"], "classifier": tiny_encoder}[family])
    options = {"family": "classifier", "labels": ("know", "unknow")} if family == "classifier" else {}
    context = llm_over(*load_base(base, **options), family).context(knowledge_prompt("Who directed the secret film?"))
    labels = (KNOW, UNKNOW) if family == "classifier" else ("Lyon", "1984")
    asyncio.run(context.label_probs(labels))
    if family != "classifier":
        asyncio.run(context.generate(max_new_tokens=3))
    first, *rest = spans()
    operation = "classification" if family == "classifier" else "text_completion"
    assert first.name == f"{operation} {base}"
    assert first.attributes["gen_ai.usage.input_tokens"] == len(context.token_ids)
    assert (first.attributes["gen_ai.usage.output_tokens"], first.attributes["gen_ai.request.model"]) == (0, base)
    assert [0 < span.attributes["gen_ai.usage.output_tokens"] <= 3 for span in rest] == [True] * (family != "classifier")
    assert "secret" not in told(spans())


def test_an_error_is_told_by_its_kind_and_not_by_its_message(spans):
    async def fail():
        raise ValueError("the secret reply")

    with pytest.raises(ValueError, match="secret"):
        asyncio.run(telemetry.call("chat", "openai", "m", fail(), lambda result: (0, 0)))
    (span,) = spans()
    assert (span.status.status_code.name, span.attributes["error.type"], span.events) == ("ERROR", "ValueError", ())
    assert "secret" not in told([span])


class Withheld(Exception):
    def __init__(self, reason):
        self.reason = reason


@pytest.mark.parametrize(("reason", "kind"), [("malformed", "malformed"), ("not a word", "Withheld"), (7, "Withheld"), ("", "Withheld")])
def test_the_kind_of_an_error_is_one_word(reason, kind):
    assert telemetry.kind_of(Withheld(reason)) == kind
