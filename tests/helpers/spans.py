"""Spans as OpenTelemetry's own SDK records them, in memory."""

from functools import cache
from typing import Any


@cache
def recorder() -> Any:
    """The exporter that keeps every span of this process, which has only one provider."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def tree(spans: Any) -> dict[str, list[str]]:
    """The names of the spans under each span, by its name; those that are under none of these are under ``."""
    by_id = {span.context.span_id: span for span in spans}
    found: dict[str, list[str]] = {}
    for span in sorted(spans, key=lambda span: span.start_time):
        parent = by_id.get(span.parent.span_id) if span.parent else None
        found.setdefault(parent.name if parent else "", []).append(span.name)
    return found


def told(spans: Any) -> str:
    """Everything that spans say, as one text."""
    return "\n".join(span.to_json() for span in spans)
