"""Containers have a network and a user of their own, and are called inside that network all the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stoker.agent.host.free_ports import HostPorts
from stoker.agent.host.own_network import LOOPBACK
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.plan import ContainerLimits
from stoker.agent.workers.http_servers.probe import probe
from stoker.agent.workers.http_servers.worker import HttpSpawner
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts
from tests.agent.workers.containers.container_host import Host
from tests.agent.workers.containers.test_container_workers import output
from tests.container_engine_here import IMAGE

pytestmark = pytest.mark.slow

RANGE = (190_040, 190_043)
SERVES = """
import http.server, json, os, socket, urllib.request
class Who(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        found = {"uid": os.getuid(), "home": os.environ.get("HOME"), "writes": os.access("/tmp", os.W_OK)}
        if self.path.startswith("/reach/"):
            with socket.socket() as caller:
                found["reached"] = caller.connect_ex(("127.0.0.1", int(self.path[7:]))) == 0
        self.wfile.write(json.dumps(found).encode())
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Who).serve_forever()
"""
PROGRAM = {"kind": "http", "command": ("python", "-uc", SERVES)}
NAMED = "stoker-test-named:1"


@pytest.fixture(scope="module")
def named(shared_engine: ContainerEngine) -> Iterator[str]:
    """An image that names a user."""
    client = shared_engine.client
    made = client.create_container(IMAGE, ["python", "-c", ""])["Id"]
    repository, _, tag = NAMED.partition(":")
    client.commit(made, repository, tag, changes=["USER 1234"])
    client.remove_container(made)
    yield NAMED
    client.remove_image(NAMED, force=True)


class Hosting(Host):
    """An agent whose containers have users of their own. `ports` reaches its http workers."""

    def __init__(self, engine: ContainerEngine, folder: Path, **more: Any) -> None:
        users = WorkerUsers(between=RANGE)
        super().__init__(engine, folder, limits=ContainerLimits(nproc=4096), users=users, **more)
        self.ports = WorkerPorts(HostPorts())
        self.contained._programs["http"] = lambda: HttpSpawner(self.containers, self.ports)

    async def get(self, worker: str, path: str) -> Any:
        with self.ports.tcp_socket(worker) as connected:
            connected.setblocking(False)
            port = self.ports.of(worker)
            await asyncio.get_running_loop().sock_connect(connected, (LOOPBACK, port))
            reader, writer = await asyncio.open_connection(sock=connected.dup())
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
        return json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest_asyncio.fixture
async def hosting(engine: ContainerEngine, tmp_path: Path) -> AsyncIterator[Hosting]:
    made = Hosting(engine, tmp_path / "data")
    yield made
    await made.spawner.close()


async def test_a_server_at_its_own_loopback_is_reached_by_its_agent_alone(hosting: Hosting) -> None:
    first, second = hosting.start(**PROGRAM), hosting.start(**PROGRAM)
    await first.received("ready")
    await second.received("ready")
    port = hosting.ports.of("w1")
    assert await hosting.get("w1", f"/reach/{port}") == {
        "uid": RANGE[0],
        "home": "/tmp",
        "writes": True,
        "reached": True,
    }
    assert (await hosting.get("w2", f"/reach/{port}"))["reached"] is False, "a neighbour has another loopback"
    assert (await hosting.get("w2", "/"))["uid"] == RANGE[0] + 1
    status, why = await probe(port, "/")
    assert (status, "Connect" in why) == (None, True), "nothing listens at the node's own loopback"


async def test_an_image_that_names_a_user_keeps_it_except_for_a_python_worker(
    hosting: Hosting, named: str
) -> None:
    worker = hosting.start(image=named, **PROGRAM)
    await worker.received("ready")
    assert (await hosting.get("w1", "/"))["uid"] == 1234
    handler = hosting.python("tells_where_it_is", "/here", image=named)
    found = await output(handler)
    assert (found["uid"], found["environment"]["HOME"]) == (RANGE[0] + 1, "/tmp")


async def test_a_stock_program_with_a_user_of_its_own_takes_jobs(hosting: Hosting, stock: None) -> None:
    command, env = ("python", "-u", "/programs/mixed.py"), {"PYTHONPATH": "/packages"}
    worker = hosting.start(command=command, kind="protocol", env=env)
    await worker.received("ready")
    assert await output(worker, {"do": "return", "value": {"a": 1}}) == {"a": 1}


async def test_the_nodes_network_where_the_operator_says_so(engine: ContainerEngine, tmp_path: Path) -> None:
    hosting = Hosting(engine, tmp_path / "data", network="host")
    try:
        await hosting.start(**PROGRAM).received("ready")
        assert (await probe(hosting.ports.of("w1"), "/"))[0] == 200
    finally:
        await hosting.spawner.close()
