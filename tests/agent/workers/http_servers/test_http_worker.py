"""Http workers as real processes: started, probed, stopped; nothing of them may be left."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from pathlib import Path

import pytest

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.free_ports import HostPorts
from stoker.agent.interfaces import WorkerExit
from stoker.agent.workers.http_servers import health
from stoker.agent.workers.http_servers.worker import HttpSpawner
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame
from tests.children import children

SERVERS = Path(__file__).parents[3] / "handlers_http"


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


def spec(*command: str, **env: str) -> WorkerSpec:
    return WorkerSpec("w1", "app", 1, str(SERVERS), kind="http", command=command, env=env)


async def test_a_server_is_ready_once_it_answers_and_ends_with_the_stop_frame(tmp_path: Path) -> None:
    before, ports, watcher = children(), WorkerPorts(HostPorts()), Watcher()
    local = LocalSpawner(tmp_path)
    spawner = HttpSpawner(local, ports)
    process = spawner.spawn(spec(sys.executable, "plain.py"), None, watcher)
    assert (await watcher.frames.get()).kind == "ready"
    port = ports.of("w1")
    with await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/a?b=1") as answer:
        assert (answer.status, answer.read()) == (200, b"/a?b=1")
    process.send(Frame("stop"))
    assert (await watcher.exit).status == -15
    assert ports.of("w1") is None
    await local.close()
    await spawner.close()
    assert children() == before


async def test_one_that_dies_is_probed_no_more(tmp_path: Path) -> None:
    watcher = Watcher()
    local = LocalSpawner(tmp_path)
    spawner = HttpSpawner(local, WorkerPorts(HostPorts()))
    spawner.spawn(spec(sys.executable, "-c", "print('no port'); raise SystemExit(3)"), None, watcher)
    ended = await watcher.exit
    assert (ended.status, ended.log_tail) == (3, ("no port",))
    assert watcher.frames.empty()
    await local.close()
    await spawner.close()


async def test_a_server_without_a_ping_is_ended_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MISSING_S", 0.3)
    watcher = Watcher()
    local = LocalSpawner(tmp_path)
    spawner = HttpSpawner(local, WorkerPorts(HostPorts()))
    command = ("sh", "-c", f"exec {sys.executable} -m http.server --bind 127.0.0.1 $PORT")
    process = spawner.spawn(spec(*command, HEALTH_CHECK_PATH="alive"), None, watcher)
    failed = await watcher.frames.get()
    assert failed.kind == "setup_failed"
    error = str(failed.fields["error"])
    assert error.startswith("its server has no health check: it answers 404 to GET /alive, for 0 s.")
    assert "HEALTH_CHECK_PATH" in error
    process.send(Frame("stop"))
    assert (await watcher.exit).status == -15
    assert watcher.frames.empty()
    await local.close()
    await spawner.close()


async def test_without_a_command_nothing_is_started(tmp_path: Path) -> None:
    local = LocalSpawner(tmp_path)
    with pytest.raises(SpawnFailed, match="names no command"):
        HttpSpawner(local, WorkerPorts(HostPorts())).spawn(spec(), None, Watcher())
    await local.close()


LEAVES = """
import http.server, os, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

server = http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
while not os.path.exists(sys.argv[1]):
    server.timeout = 0.05
    server.handle_request()
server.server_close()
print("left", flush=True)
time.sleep(600)
"""


async def test_another_process_at_its_port_gets_no_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, ports, leave = Watcher(), WorkerPorts(HostPorts()), tmp_path / "leave"
    local = LocalSpawner(tmp_path)
    spawner = HttpSpawner(local, ports)
    process = spawner.spawn(spec(sys.executable, "-c", LEAVES, str(leave)), None, watcher)
    assert (await watcher.frames.get()).kind == "ready"
    port, seen, refused = ports.of("w1"), 0, asyncio.Event()
    assert port is not None
    look = ports.foreign

    async def counted(worker: str, port: int) -> bool:
        nonlocal seen
        foreign = await look(worker, port)
        seen += foreign
        if seen == 2:
            refused.set()
        return foreign

    monkeypatch.setattr(ports, "foreign", counted)
    leave.touch()
    assert (await watcher.frames.get()).kind == "unfit"
    accepted: list[asyncio.StreamWriter] = []
    rogue = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", port)
    await refused.wait()
    assert (accepted, watcher.frames.empty()) == ([], True)
    rogue.close()
    await rogue.wait_closed()
    process.kill()
    await watcher.exit
    await local.close()
    await spawner.close()
