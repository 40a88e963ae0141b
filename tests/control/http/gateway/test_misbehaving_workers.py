"""Servers that break HTTP, behind a real gateway and gateway port: no caller has anything of another's.

The server is tests/handlers_http/misbehaving.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from stoker.agent.host.free_ports import HostPorts
from stoker.agent.host.own_network import LOOPBACK
from stoker.agent.workers.http_servers.certificate import make_certificate
from stoker.agent.workers.http_servers.gateway_port import GatewayPort
from stoker.agent.workers.http_servers.relay import Relay
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts
from stoker.control.config.endpoints import Endpoints
from stoker.control.http.gateway.gateway import Gateway
from stoker.control.http.gateway.reaching import Reaching
from stoker.control.http.server.server import serve_http
from stoker.control.rules.access import ALL, Caller
from stoker.control.rules.nodes.ways import NodeGateway, Reach
from stoker.control.scheduling.cluster_state import ClusterState, NodeState
from stoker.control.scheduling.placed import PlacedWorker
from stoker.control.scheduling.requests import Requests
from tests.control.http.gateway.memory_worker import app_endpoint
from tests.load_module import load_module

misbehaving = load_module("misbehaving", Path(__file__).parents[3] / "handlers_http" / "misbehaving.py")
PRIVATE = misbehaving.PRIVATE
ROUNDS = 3


@contextmanager
def misbehaving_server() -> Iterator[int]:
    with misbehaving.Server((LOOPBACK, 0), misbehaving.Misbehaving) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


async def caller_of_all(_: str | None) -> Caller:
    return Caller("default", "k", ALL)


async def nothing(*_: Any) -> None:
    raise AssertionError("the path names the endpoint")


def gateway_to(port: NodeGateway, way: Any) -> Gateway:
    """A gateway whose one endpoint has one worker, on a node that is reached at this port."""
    cluster = ClusterState()
    cluster.nodes["n"] = NodeState("n", 1, (), reach=Reach({way: port}))
    cluster.add_worker(PlacedWorker("w", "app", 1, "n", 1, "ready"))
    endpoints = Endpoints({})
    endpoints.load([app_endpoint()])
    plane: Any = SimpleNamespace(
        requests=Requests(cluster, time.time, lambda: None),
        endpoints=endpoints,
        cluster=cluster,
        callers=SimpleNamespace(find=caller_of_all),
    )
    none: Any = None
    return Gateway(plane, Reaching(cluster, none, time.time), Random(1), nothing)


@asynccontextmanager
async def called(folder: Path, way: str = "local") -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a gateway before a server that misbehaves, which is a worker of a node."""
    context, certificate = make_certificate(folder) if way == "direct" else (None, b"")
    with misbehaving_server() as served:
        ports = WorkerPorts(HostPorts())
        ports.add("w", served, os.getpid())
        relay = Relay(ports)
        port = GatewayPort(relay, context)
        await port.open(LOOPBACK, 0)
        gateway = gateway_to(NodeGateway(LOOPBACK, port.port, port.token, certificate), way)
        try:
            async with (
                await serve_http(gateway, LOOPBACK, 0, grace_s=1) as server,
                httpx2.AsyncClient(base_url=f"{server.url}/v2/app", trust_env=False, timeout=60) as client,
            ):
                yield client
        finally:
            gateway.connections.close()
            await port.close()
            await relay.close()


async def test_bytes_after_an_answer_reach_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with called(tmp_path) as client:
        for _ in range(ROUNDS):
            for method, path in (
                ("HEAD", "/bodies/head"),
                ("GET", "/bodies/204"),
                ("GET", "/bodies/304"),
                ("GET", "/surplus"),
                ("GET", "/nonsense"),
                ("GET", "/half"),
            ):
                first = await client.request(method, path)
                assert PRIVATE not in first.content, path
                others = await asyncio.gather(*(client.get(f"/of/others/{n}") for n in range(3)))
                assert [one.text for one in others] == [f"GET /of/others/{n}" for n in range(3)], path
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_an_answer_without_a_body_passes_whatever_length_it_tells(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with called(tmp_path) as client:
        for status in (204, 304):
            answer = await client.get(f"/length/{status}")
            assert (answer.status_code, answer.content) == (status, b"")
            assert "content-length" not in answer.headers
        told = await client.head("/bodies/head")
        assert (told.status_code, told.headers["content-length"]) == (200, str(len(PRIVATE)))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/nonsense", "sent what is not an HTTP response"),
        ("/half", "closed its connection before its response was complete"),
        ("/nothing", "closed its connection without a response"),
    ],
)
async def test_a_refusal_has_words_of_its_own(tmp_path: Path, path: str, why: str) -> None:
    async with called(tmp_path) as client:
        answer = await client.post(path)
        assert (answer.status_code, answer.json()["detail"]) == (502, f"worker w {why}")
        assert answer.headers["x-runpod-worker-id"] == "w"


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(200):
        yield bytes(64 * 1024)


@pytest.mark.parametrize("way", ["local", "direct"])
@pytest.mark.parametrize("status", [401, 413])
async def test_an_answer_that_comes_before_the_body_was_read_is_passed_on(
    tmp_path: Path, way: str, status: int
) -> None:
    async with called(tmp_path, way) as client:
        for _ in range(ROUNDS):
            answer = await client.post(f"/early/{status}", content=pieces())
            assert (answer.status_code, answer.content) == (status, b"told early")


async def test_what_only_reads_is_sent_once_more_when_a_kept_connection_ends(tmp_path: Path) -> None:
    async with called(tmp_path) as client:
        for method in ("GET", "HEAD", "OPTIONS"):
            for _ in range(ROUNDS):
                answer = await client.request(method, "/forgets")
                assert answer.status_code == 200, method
        await client.get("/forgets")
        lost = await client.post("/forgets", content=b"work")
        assert lost.status_code == 502, "the worker may have done the work"
        assert (await client.get("/nothing")).status_code == 502, "it is sent twice at most"
