"""A collector of OpenTelemetry on loopback: what control exports over OTLP, decoded."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.servers.loopback_server import served

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Received:
    """A span as it came: ids in hexadecimal digits, times in seconds, and its process's name."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    began: float
    ended: float
    attributes: dict[str, str | int]
    failed: bool


class Collector:
    """`status` answers each request. `bodies` are all that came, as it came."""

    def __init__(self) -> None:
        self.status = 200
        self.bodies: list[bytes] = []
        self._requests: queue.Queue[bytes] = queue.Queue()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                spans = self.path == "/v1/traces"
                self.send_response(collector.status if spans else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                if spans:
                    collector.bodies.append(body)
                    collector._requests.put(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def next(self) -> list[Received]:
        """Waits for one more request."""
        request = ExportTraceServiceRequest()
        request.ParseFromString(self._requests.get(timeout=PATIENCE_S))
        return [
            Received(
                next(one.value.string_value for one in of.resource.attributes if one.key == "service.name"),
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.start_time_unix_nano / 1e9,
                span.end_time_unix_nano / 1e9,
                {one.key: one.value.string_value or one.value.int_value for one in span.attributes},
                span.status.code == span.status.STATUS_CODE_ERROR,
            )
            for of in request.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]


@contextmanager
def collector() -> Iterator[Collector]:
    made = Collector()
    with served(made.server):
        yield made
