"""Whether traces are exported: by OpenTelemetry's own variables, and with its SDK alone."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AsyncExitStack

import pytest

from stoker.cli.control.tracing import refusal, traces

AT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ""),
        (AT, None),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, None),
        (AT | {"OTEL_SDK_DISABLED": "true"}, ""),
        (AT | {"OTEL_TRACES_EXPORTER": "none"}, ""),
        (AT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, None),
        (
            AT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; "
            "control sends http/protobuf only, to the port 4318 of most collectors",
        ),
    ],
)
def test_when(variables: dict[str, str], why: str | None) -> None:
    assert refusal(variables) == why


async def test_an_install_without_the_extra_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "stoker.control.traces.otlp", None)
    async with AsyncExitStack() as stack:
        assert await traces(stack, AT) is None
        assert await traces(stack, {}) is None
    [line] = caplog.messages
    assert line.startswith("no traces are exported: OpenTelemetry's SDK is not installed; install it with: ")
    assert "[control,traces]" in line


def test_nothing_of_the_sdk_is_imported_where_nobody_asks() -> None:
    program = (
        "import asyncio, sys, contextlib\n"
        "from stoker.cli.control.tracing import traces\n"
        "assert asyncio.run(traces(contextlib.AsyncExitStack(), {})) is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
