# ruff: noqa: ASYNC220, ASYNC221  # waiting for real processes is what these tests do
"""A worker's neighbours at its port: what they get of the server of an app's functions, and of any other.

The neighbours are real processes of other users of the workers' range, as handlers are.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.free_ports import HostPorts
from stoker.agent.host.own_network import LOOPBACK
from stoker.agent.host.sandbox.isolation import Host
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.interfaces import WorkerExit
from stoker.agent.workers.http_servers.port_filter import NoFilter, PortFilter
from stoker.agent.workers.http_servers.probe import probe
from stoker.agent.workers.http_servers.relay import Relay
from stoker.agent.workers.http_servers.worker import HttpSpawner
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.cli.agent.isolation import Isolation, _filter
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame
from tests.other_users import SYSTEM_PYTHON, WHY_NOT

SERVER = ("python", "-P", "-m", "stoker.worker.functions.server")
RANGE = (191_000, 191_003)
OUTSIDE = 200_000
SOURCE = Path(__file__).parents[4] / "src"

ASKS = """
import http.client, sys
host, port = sys.argv[1], int(sys.argv[2])
try:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("POST", "/execute", "{}", {"X-Asks": "the neighbour"})
    answer = connection.getresponse()
    print(answer.status, answer.read().decode())
except OSError as error:
    print(error.strerror)
"""
"""What a handler does that is curious about a port of its node."""

SERVES = """
import http.client, http.server, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/self":
            asked = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]), timeout=60)
            asked.request("GET", "/")
            asked.getresponse().read()
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"mine\\n")

    do_POST = do_GET

http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


class Watcher:
    """What an agent hears of a worker."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()
        self.exit: asyncio.Future[WorkerExit] = asyncio.get_running_loop().create_future()

    def on_frame(self, frame: Frame) -> None:
        self.frames.put_nowait(frame)

    def on_broken(self, why: str) -> None:
        raise AssertionError(why)

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        self.exit.set_result(exit)


def ask(port: int, uid: int | None = None, host: str = LOOPBACK, *before: str) -> str:
    """What the port answers to a process of this user."""
    user = {} if uid is None else {"user": uid, "group": uid, "extra_groups": ()}
    command = [*before, SYSTEM_PYTHON, "-c", ASKS, host, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", **user)  # type: ignore[call-overload]
    return str(done.stdout).strip()


def port_of(ports: WorkerPorts, worker: str) -> int:
    port = ports.of(worker)
    assert port is not None
    return port


async def status_through(relay: Relay, request: bytes) -> bytes:
    """What control gets for a request to `w1`."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relay.serve(reader, writer)
        ended.set()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    reader, writer = await asyncio.open_connection(LOOPBACK, server.sockets[0].getsockname()[1])
    writer.write(b"CONNECT w1 HTTP/1.1\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n"))[9:12] == b"200"
    writer.write(request)
    status = (await reader.readuntil(b"\r\n"))[9:12]
    writer.close()
    await ended.wait()
    server.close()
    await server.wait_closed()
    return status


# ---- the server of an app's functions: everywhere ---------------------------------------------


async def test_nobody_but_the_agent_runs_code_on_the_server_of_functions(tmp_path: Path) -> None:
    ports, watcher, local = WorkerPorts(HostPorts()), Watcher(), LocalSpawner(tmp_path)
    spawner, relay = HttpSpawner(local, ports), Relay(ports)
    variables = {"STOKER_FUNCTIONS_LIVE": "1", "PYTHONPATH": str(SOURCE), "STOKER_FUNCTIONS_PROOF": "mine"}
    spec = WorkerSpec("w1", "app", 1, "", kind="http", command=SERVER, env=variables)
    process = spawner.spawn(spec, None, watcher)
    assert (await watcher.frames.get()).kind == "ready", "the agent's probe has the proof"
    port = port_of(ports, "w1")
    assert ask(port).startswith("401 "), "one of the same user, without any isolation"
    assert await status_through(relay, b"POST /execute HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}") == b"422"
    status, _ = await probe(port, "/ping")
    assert status == 401
    process.kill()
    await watcher.exit
    await local.close()
    await spawner.close()
    await relay.close()


# ---- any other server: where the kernel's filter can be used -----------------------------------


@pytest.fixture(scope="module")
def tools() -> None:
    packages = Path(__file__).parents[4] / ".ci" / "packages"
    subprocess.run([packages, "nftables:nft", "iproute2:ip"], check=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user can pass into."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        (Path(name) / "data").mkdir(mode=0o711)
        yield Path(name)


@pytest.fixture
async def protected(tools: None, folder: Path) -> AsyncIterator[tuple[WorkerPorts, PortFilter]]:
    """A worker `w1` of a user of its own, and the filter of its node."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    users = WorkerUsers(between=RANGE)
    try:
        keeping = PortFilter(users, RANGE, folder)
    except NoFilter as why:
        pytest.skip(f"no packet filter here: {why}")
    ports, watcher = WorkerPorts(HostPorts(), keeping), Watcher()
    local = LocalSpawner(folder / "data", users=users, host=Host(user_range=RANGE))
    spawner = HttpSpawner(local, ports)
    handlers = folder / "handlers"
    handlers.mkdir(mode=0o755)
    spec = WorkerSpec("w1", "app", 1, str(handlers), kind="http", command=(SYSTEM_PYTHON, "-c", SERVES))
    process = spawner.spawn(spec, None, watcher)
    assert (await watcher.frames.get()).kind == "ready", "the agent may connect"
    yield ports, keeping
    process.kill()
    await watcher.exit
    await local.close()
    await spawner.close()
    keeping.close()


async def test_no_other_worker_reaches_a_worker(protected: tuple[WorkerPorts, PortFilter]) -> None:
    port = port_of(protected[0], "w1")
    for host in (LOOPBACK, "127.0.0.9"):
        assert ask(port, RANGE[1], host) == "Connection refused"
        assert ask(port, OUTSIDE, host) == "200 mine", "one of the operator's own users"


async def test_a_worker_reaches_itself_and_control_reaches_it(
    protected: tuple[WorkerPorts, PortFilter],
) -> None:
    relay = Relay(protected[0])
    assert await status_through(relay, b"GET /self HTTP/1.1\r\nHost: x\r\n\r\n") == b"200"
    await relay.close()


async def test_no_other_host_reaches_a_worker(protected: tuple[WorkerPorts, PortFilter]) -> None:
    """The other host is a network namespace, as a container's."""
    if shutil.which("ip") is None:
        pytest.skip("iproute2 is not installed")
    for command in SECOND_HOST:
        if (done := subprocess.run(command.split(), capture_output=True, text=True, check=False)).returncode:
            subprocess.run(["ip", "netns", "del", "stoker-test"], capture_output=True, check=False)
            pytest.skip(f"no second host here: {command}: {done.stderr.strip()}")
    try:
        port, inside = port_of(protected[0], "w1"), ("ip", "netns", "exec", "stoker-test")
        assert ask(port, None, "198.18.7.1", *inside) == "Connection refused"
        protected[1].close()
        assert ask(port, None, "198.18.7.1", *inside) == "200 mine", "it listens at every address"
    finally:
        subprocess.run(["ip", "netns", "del", "stoker-test"], check=True)


SECOND_HOST = (
    "ip netns add stoker-test",
    "ip link add stoker-t0 type veth peer name stoker-t1 netns stoker-test",
    "ip addr add 198.18.7.1/30 dev stoker-t0",
    "ip link set stoker-t0 up",
    "ip -n stoker-test addr add 198.18.7.2/30 dev stoker-t1",
    "ip -n stoker-test link set stoker-t1 up",
)


async def test_a_filter_that_somebody_removed_comes_back(protected: tuple[WorkerPorts, PortFilter]) -> None:
    ports, keeping = protected
    keeping.close()
    assert ask(port_of(ports, "w1"), RANGE[1]) == "200 mine"
    (second,) = ports.take("w2", 1)
    assert ask(port_of(ports, "w1"), RANGE[1]) == ask(second, RANGE[1]) == "Connection refused"
    ports.remove("w2")
    relay = Relay(ports)
    assert await status_through(relay, b"GET /self HTTP/1.1\r\nHost: x\r\n\r\n") == b"200"
    await relay.close()


async def test_a_port_that_is_given_back_is_anybodys(protected: tuple[WorkerPorts, PortFilter]) -> None:
    ports, _ = protected
    (second,) = ports.take("w2", 1)
    with subprocess.Popen(
        [SYSTEM_PYTHON, "-u", "-c", "print()\n" + SERVES],
        env={"PORT": str(second)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as served:
        assert served.stdout is not None
        served.stdout.readline()
        assert ask(second, RANGE[1]) == "Connection refused"
        ports.remove("w2")
        while (asked := ask(second, RANGE[1])) == "Connection refused":
            assert served.poll() is None
        assert asked == "200 mine"
        served.kill()


async def test_a_worker_that_cannot_be_protected_does_not_start(
    protected: tuple[WorkerPorts, PortFilter], monkeypatch: pytest.MonkeyPatch
) -> None:
    ports, _ = protected
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    with pytest.raises(SpawnFailed, match="kept from this worker's port: nft is not installed"):
        ports.take("w2", 1)
    monkeypatch.undo()
    (port,) = ports.take("w2", 1)
    ports.remove("w2")
    assert port


def test_a_node_reports_whether_it_protects_them(tools: None, folder: Path) -> None:
    nobody = Isolation(Host(), WorkerUsers(), None, *_filter(WorkerUsers(), None, folder))
    assert nobody.facts["isolation.http_ports"] == "no: workers have no users of their own (--worker-users)"
    users = WorkerUsers(between=RANGE)
    each = Isolation(Host(), users, None, *_filter(users, RANGE, folder))
    assert each.facts["isolation.http_ports"].startswith(("yes: ", "no: nft"))
    each.close()
