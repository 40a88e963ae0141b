"""Export of spans over OTLP, by the OpenTelemetry SDK: the extra `traces`, which only this module imports.

A thread of the SDK sends what waits every few seconds, at most 2,048 spans; more are dropped, and so are
those that a collector does not take. Address, headers, batches and the service's name are OpenTelemetry's own
variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and others).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from stoker.control.traces.spans import TraceSpan

log = logging.getLogger(__name__)

CLOSE_S = 2.0
"""A collector that does not answer holds up no exit."""

NANO = 1_000_000_000


class OtlpExport:
    """The export of one control process; to be called with each span, on any thread."""

    def __init__(self, version: str) -> None:
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)  # `_Outages` speaks for it
        own = Resource({"service.name": "stoker-control", "service.version": version})
        self._resource = own.merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("stoker", version)
        self._processor = BatchSpanProcessor(_Outages(OTLPSpanExporter()))

    def __call__(self, span: TraceSpan) -> None:
        parent = _context(span.own.trace, span.parent) if span.parent else None
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=_context(span.own.trace, span.own.span),
                parent=parent,
                resource=self._resource,
                attributes=span.attributes,
                kind=SpanKind.SERVER if span.served else SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
                start_time=round(span.began * NANO),
                end_time=round(span.ended * NANO),
                instrumentation_scope=self._scope,
            )
        )

    async def close(self) -> None:
        """Sends what waits, as far as that is possible in a short time."""
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def shut() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # the loop did not wait so long
                loop.call_soon_threadsafe(sent.set)

        threading.Thread(target=shut, name="end of traces", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await sent.wait()


class _Outages(SpanExporter):
    """An exporter that logs the begin and the end of an outage, once each."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        down = result is not SpanExportResult.SUCCESS
        if down and not self._down:
            log.error("the collector of OTEL_EXPORTER_OTLP_ENDPOINT takes no spans; they are dropped")
        elif self._down and not down:
            log.info("the collector takes spans again")
        self._down = down
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _context(trace: str, span: str) -> SpanContext:
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=sampled)
