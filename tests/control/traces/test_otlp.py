"""Spans over OTLP: as a collector on loopback reads them, and where it takes none."""

from __future__ import annotations

import logging

import pytest

from stoker.control.traces.otlp import OtlpExport
from stoker.control.traces.spans import TraceSpan
from stoker.control.traces.traceparent import Traceparent
from tests.servers.collector import Collector, Received, collector

OWN = Traceparent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True)
SPAN = TraceSpan("job", OWN.child("job", "j1"), OWN.span, 1_000.25, 1_002.5, {"stoker.job": "j1", "n": 2})


def export(to: Collector, monkeypatch: pytest.MonkeyPatch) -> OtlpExport:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.url)
    return OtlpExport("1.2.3")


async def test_what_a_collector_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as to:
        exported = export(to, monkeypatch)
        exported(SPAN)
        exported(TraceSpan("GET", OWN, "", 1.0, 2.0, {}, served=True, failed=True))
        await exported.close()
        job, first = to.next()
    own = SPAN.own
    assert job == Received(
        "stoker-control",
        "job",
        own.trace,
        own.span,
        OWN.span,
        1_000.25,
        1_002.5,
        {"stoker.job": "j1", "n": 2},
        failed=False,
    )
    assert (first.span, first.parent, first.failed) == (OWN.span, "", True)


async def test_the_operator_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "pictures")
    with collector() as to:
        exported = export(to, monkeypatch)
        exported(SPAN)
        await exported.close()
        assert [span.service for span in to.next()] == ["pictures"]


async def test_an_outage_of_the_collector_is_two_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with collector() as to:
        exported = export(to, monkeypatch)
        for status in (400, 400, 200):
            to.status = status
            exported(SPAN)
            exported._processor.force_flush()
            to.next()
        await exported.close()
    assert caplog.messages == [
        "the collector of OTEL_EXPORTER_OTLP_ENDPOINT takes no spans; they are dropped",
        "the collector takes spans again",
    ]


async def test_a_collector_that_is_not_there_holds_up_no_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as gone:
        pass
    monkeypatch.setattr("stoker.control.traces.otlp.CLOSE_S", 0.05)
    exported = export(gone, monkeypatch)
    exported(SPAN)
    await exported.close()
