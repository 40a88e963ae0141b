"""The traces of `stoker control`: exported where OpenTelemetry's variables name a collector, with the extra
`traces`. Without them nothing of OpenTelemetry's SDK is imported, and callers' traces are only handed on."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

from stoker import __version__
from stoker.cli.extras import how_to_install
from stoker.control.traces.traces import Traces

log = logging.getLogger(__name__)

PROTOCOL = "http/protobuf"


def refusal(variables: Mapping[str, str]) -> str | None:
    """Returns why nothing is exported; "" where nobody asked for it, and None where it is."""
    named = [f"OTEL_EXPORTER_OTLP_{which}" for which in ("TRACES_ENDPOINT", "ENDPOINT")]
    endpoint = next((name for name in named if variables.get(name)), None)
    off = variables.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if endpoint is None or off or variables.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return ""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if (protocol := variables.get(name, PROTOCOL)) != PROTOCOL:
            return (
                f"{name} is {protocol!r}; control sends {PROTOCOL} only, to the port 4318 of most collectors"
            )
    return None


async def traces(stack: AsyncExitStack, variables: Mapping[str, str]) -> Traces | None:
    """Returns the traces, which are exported until the stack ends; None where they are not."""
    why = refusal(variables)
    if why is None:
        try:
            from stoker.control.traces.otlp import OtlpExport
        except ImportError:
            why = f"OpenTelemetry's SDK is not installed; {how_to_install(['control', 'traces'])}"
        else:
            export = OtlpExport(__version__)
            stack.push_async_callback(export.close)
            return Traces(export, time.time)
    if why:
        log.warning("no traces are exported: %s", why)
    return None
