"""An OpenTelemetry collector on loopback: it takes OTLP over HTTP and remembers what runs said."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Collector(ThreadingHTTPServer):
    """Remembers `spans`, and the `values` of metrics: the last number of each, by its name and the values of its attributes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.spans, self.values, self.resources = list[Any](), dict[tuple[str, ...], float](), list[dict[str, str]]()

    def take_traces(self, content: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for of_resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            self.resources.append(_values(of_resource.resource.attributes))
            self.spans += [span for of_scope in of_resource.scope_spans for span in of_scope.spans]

    def take_metrics(self, content: bytes) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        for of_resource in ExportMetricsServiceRequest.FromString(content).resource_metrics:
            self.resources.append(_values(of_resource.resource.attributes))
            for metric in (metric for of_scope in of_resource.scope_metrics for metric in of_scope.metrics):
                points = getattr(metric, metric.WhichOneof("data")).data_points
                for point in points:
                    number = point.count if metric.HasField("histogram") else point.as_int or point.as_double
                    self.values[metric.name, *_values(point.attributes).values()] = number


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        {"/v1/traces": self.server.take_traces, "/v1/metrics": self.server.take_metrics}[self.path](content)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


def _values(attributes: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in attributes}


@contextmanager
def collecting() -> Generator[Collector]:
    """A collector in this process, on a thread, until the block ends."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
