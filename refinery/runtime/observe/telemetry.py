"""What OpenTelemetry is told: spans of questions, rows, model calls and searches, and how far a run is. Never their texts.

Nothing of it is imported unless the environment asks for it (`configure`), or a program that uses Refinery has set up its SDK. Names and
attributes follow the conventions for generative AI (github.com/open-telemetry/semantic-conventions-genai). Errors are told by their kind,
because their messages quote replies.
"""

import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from refinery.installed import install_extra
from refinery.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, Observation
    from opentelemetry.trace import Span

T = TypeVar("T")
Values = Callable[[], Mapping[str, Any]]
_log = logging.getLogger(__name__)
_NAME = "refinery"
IN_PROCESS = "refinery"  # the provider of models on this machine
_GROWING = ("done", "failed", "cost_usd")  # values of a run that are counters
_runs: dict[str, Values] = {}
_NO_SPAN = nullcontext()


def configure() -> None:
    """Send traces and metrics where OpenTelemetry's variables say (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_EXPORTER` and so on)."""
    exporters = {signal: names for signal in ("traces", "metrics") if (names := _wanted(signal))}
    if not exporters or _is_used():
        return
    try:
        _set_up({signal: [_exporter(signal, name) for name in names] for signal, names in exporters.items()})
    except (ImportError, LookupError, ValueError) as error:  # it must not end a run
        _log.warning("OTEL_*: no traces and metrics are sent: %s", error)


def _wanted(signal: str) -> list[str]:
    """The names of the exporters of `traces` or `metrics`; by default `otlp` if an address for it is given."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    addresses = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    default = "otlp" if any(os.environ.get(name) for name in addresses) else ""
    names = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER") or default
    return [name for name in map(str.strip, names.split(",")) if name not in ("", "none")]


def _exporter(signal: str, name: str) -> Any:
    """The exporter that a package registers under this name. Raises LookupError when none does."""
    from importlib.metadata import entry_points

    if name == "otlp":
        protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        return found.load()()
    raise LookupError(f"no exporter '{name}' of {signal}. Install the extra: {install_extra('observe')}")


def _set_up(exporters: Mapping[str, list[Any]]) -> None:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: _NAME}))
    if spans := exporters.get("traces"):
        provider = TracerProvider(resource=resource)
        for exporter in spans:
            provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
    if measured := exporters.get("metrics"):
        metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(one) for one in measured], resource=resource))


def workflow(name: str, **ids: str) -> AbstractContextManager[object]:
    """A span of one question or row, around all of its calls and searches; `ids` tell which one it is."""
    if not _is_used():
        return _NO_SPAN
    labels = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.agent.name": name}
    return _span(name, labels, {f"refinery.{key}": value for key, value in ids.items()})


async def call(
    operation: str, provider: str, model: str, work: Awaitable[T], tokens: Callable[[T], tuple[int, int]], adapter: str | None = None
) -> T:
    """The result of a model's work, in a span; `tokens` says how many it read and wrote."""
    if not _is_used():
        return await work
    model = f"{model}:{adapter}" if adapter else model
    labels = {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider, "gen_ai.request.model": model}
    with _span(model, labels, {}, is_remote=provider != IN_PROCESS) as span:
        result = await work
        for direction, count in zip(("input", "output"), tokens(result), strict=True):
            span.set_attribute(f"gen_ai.usage.{direction}_tokens", count)
            _histogram("gen_ai.client.token.usage", "{token}").record(count, {"gen_ai.token.type": direction, **labels})
    return result


async def search(retriever: str, k: int, work: Awaitable[T]) -> T:
    """The result of a search for `k` passages, in a span."""
    if not _is_used():
        return await work
    labels = {"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": retriever}
    with _span(retriever, labels, {"gen_ai.retrieval.top_k": k}):
        return await work


def continuing(headers: Mapping[str, str]) -> AbstractContextManager[None]:
    """A block whose spans belong to the trace of the request with these headers (`traceparent`), if it is part of one."""
    return _attached(headers) if _is_used() else _NO_SPAN


@contextmanager
def _attached(headers: Mapping[str, str]) -> Generator[None]:
    from opentelemetry import context, propagate

    token = context.attach(propagate.extract(headers))
    try:
        yield
    finally:
        context.detach(token)


def _is_used() -> bool:
    """Whether anything listens: without an SDK, every span would be lost."""
    return "opentelemetry.sdk.resources" in sys.modules


@contextmanager
def _span(subject: str, labels: dict[str, str], ids: Mapping[str, Any], *, is_remote: bool = False) -> "Generator[Span]":
    """A span, and its seconds in a histogram, which has the `labels` alone."""
    from opentelemetry.trace import SpanKind, StatusCode, get_tracer

    started, name = time.perf_counter(), f"{labels['gen_ai.operation.name']} {subject}"
    kind, attributes = SpanKind.CLIENT if is_remote else SpanKind.INTERNAL, {**labels, **ids}
    span = get_tracer(_NAME, __version__).start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    )
    with span as current:
        try:
            yield current
        except BaseException as error:
            labels["error.type"] = kind_of(error)
            current.set_attribute("error.type", labels["error.type"])
            current.set_status(StatusCode.ERROR)
            raise
        finally:
            _histogram("gen_ai.client.operation.duration", "s").record(time.perf_counter() - started, labels)


def kind_of(error: BaseException) -> str:
    """One of a few words for an error: its reason if it has one, such as `malformed`, else its class."""
    reason = getattr(error, "reason", None)
    return reason if isinstance(reason, str) and reason.isidentifier() else type(error).__name__


@cache
def _histogram(name: str, unit: str) -> "Histogram":
    from opentelemetry.metrics import get_meter

    bounds = [0.01 * 2**n for n in range(17)] if unit == "s" else [4**n for n in range(14)]
    return get_meter(_NAME, __version__).create_histogram(name, unit, explicit_bucket_boundaries_advisory=bounds)


def report_run(title: str, values: Values) -> None:
    """Tell metrics `refinery.run.*` what `values()` says of a run, from now on."""
    if not _is_used():
        return
    if not _runs:
        from opentelemetry.metrics import get_meter

        meter = get_meter(_NAME, __version__)
        meter.create_observable_gauge("refinery.run.planned", [_observed("total")])
        for key in _GROWING:
            meter.create_observable_counter(f"refinery.run.{key}", [_observed(key)])
    _runs[title] = values


def end_run(title: str) -> None:
    """Keep what a run says at its end, because the last report is sent when the process ends."""
    if values := _runs.get(title):
        with suppress(RuntimeError):
            last = dict(values())
            _runs[title] = lambda: last


def _observed(key: str) -> "Callable[[CallbackOptions], Iterator[Observation]]":
    from opentelemetry.metrics import Observation

    def observe(options: "CallbackOptions") -> "Iterator[Observation]":
        for title, values in list(_runs.items()):
            with suppress(RuntimeError):  # a count that changes while it is read
                if (value := values().get(key)) is not None:
                    yield Observation(value, {"refinery.run.title": title})

    return observe
