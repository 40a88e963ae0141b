"""The agent's own probes and metrics, where the operator asks for them (`--probes HOST:PORT`).

    /healthz   200 while the agent's loop answers
    /ready     200, or 503 with what is wrong: no session with control, a full disk, an agent that leaves
    /metrics   for Prometheus: workers, jobs, failed uploads, reports that wait, free disk; devices are in
               control's

None needs a key, so the address should be one that only the host, or its monitoring, reaches.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator, Mapping
from datetime import datetime

import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stoker.agent.node import Agent
from stoker.cli.errors import CliError

LAG_EVERY_S = 1.0
LAGS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
FREE_LEAST = 1 << 30
"""Bytes that the disk of the data folder must have free."""


def probes_listener(address: str) -> socket.socket:
    """Returns the listening socket of `HOST:PORT`. Raises CliError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise CliError(f"--probes is HOST:PORT, such as 127.0.0.1:9101; got {address!r}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family)
    except OSError as error:
        raise CliError(f"--probes {address} cannot be listened at: {error.strerror}") from None


def checks_of(agent: Agent) -> dict[str, str]:
    """Returns what `/ready` checks: "ok", or a sentence."""
    free = int(agent.settings.facts.get("disk_free", FREE_LEAST))
    return {
        "control": "ok" if agent.connected else "there is no session with control",
        "disk": "ok" if free >= FREE_LEAST else f"{free >> 20} MiB are free, {FREE_LEAST >> 20} are needed",
        "agent": "it is about to leave" if agent.leaving else "ok",
    }


class LoopLag:
    """A histogram of how late the agent's loop wakes, which is measured while probes are served."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "stoker_agent_loop_lag_seconds",
            "How late the agent's loop wakes.",
            buckets=LAGS_S,
            registry=self.registry,
        )

    async def watch(self) -> None:
        """Measures until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._seconds.observe(max(loop.time() - due, 0.0))


def metrics_of(agent: Agent) -> bytes:
    """Returns the agent's metrics in Prometheus's text format."""
    registry = CollectorRegistry()
    build = Info("stoker_agent_build", "The version of this agent.", registry=registry)
    build.info({"version": agent.settings.agent_version})
    failed = Counter("stoker_agent_upload_failures", "Uploads that failed.", registry=registry)
    failed.inc(agent.attempts.upload_failures)

    def gauge(name: str, about: str, value: float) -> None:
        Gauge(name, about, registry=registry).set(value)

    gauge("stoker_agent_connected", "1 while there is a session with control.", agent.connected)
    gauge("stoker_agent_jobs", "Jobs that wait, run or upload here.", len(agent.attempts.held()))
    gauge("stoker_agent_reports_unsent", "Reports that control has not acknowledged.", agent.reports.unsent)
    for name in ("disk_free", "disk_total"):
        if value := agent.settings.facts.get(name):
            gauge(f"stoker_agent_{name}_bytes", "The disk of the data folder.", float(value))
    if end := agent.settings.facts.get("certificate_ends"):
        left = datetime.fromisoformat(end).timestamp() - time.time()
        gauge("stoker_agent_certificate_seconds", "How long this node's certificate is good.", left)
    workers = Gauge("stoker_agent_workers", "Workers here.", ["endpoint", "state"], registry=registry)
    for held in agent.workers.held():
        workers.labels(held.endpoint, held.state).inc()
    return generate_latest(registry)


async def serve_probes(agent: Agent, listener: socket.socket) -> None:
    """Serves until cancelled."""
    lag = LoopLag()

    def answer(status: int, body: Mapping[str, object]) -> Response:
        return JSONResponse(body, status, headers={"Cache-Control": "no-store"})

    async def healthz(_: Request) -> Response:
        return answer(200, {"status": "ok"})

    async def ready(_: Request) -> Response:
        checks = checks_of(agent)
        well = all(found == "ok" for found in checks.values())
        return answer(200 if well else 503, {"status": "ready" if well else "not ready", "checks": checks})

    async def metrics(_: Request) -> Response:
        text = metrics_of(agent) + generate_latest(lag.registry)
        return Response(text, headers={"Cache-Control": "no-store"}, media_type="text/plain")

    calls = {"/healthz": healthz, "/ready": ready, "/metrics": metrics}
    server = _Server(
        uvicorn.Config(
            Starlette(routes=[Route(path, call) for path, call in calls.items()]),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
        )
    )
    watching = asyncio.create_task(lag.watch(), name="lag of the loop")
    try:
        await server.serve([listener])
    finally:
        watching.cancel()
        listener.close()


class _Server(uvicorn.Server):
    """A server that installs no signal handlers, and ends with the task that serves."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.force_exit = True
