"""A leader and a spare on one PostgreSQL, with agents and callers, as real processes: leaders, an agent and
the server are killed, a leader stands still, and each accepted job ends once, with its own output.

The figures that it prints are of this run: how long callers were refused, and how soon work went on.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from stoker.client import AsyncClient, Client, ClientError
from tests.kept_port import kept_port
from tests.servers.postgres_server import PostgresServer
from tests.system.stack import START_S, Stack, queue_endpoint, until

ENDPOINT = queue_endpoint("echo", "outputs/echo.py", workersMax=2)
CALLERS = 8
PAUSED_S = 70.0
TIMEOUT_S = 4.0
AGAIN_S = 0.05
NAMES = ("control", "standby")


class Callers:
    """Submit jobs 0 to `count`, each until it is accepted. `gaps` are the times in which nobody was."""

    def __init__(self, addresses: str, key: str, count: int) -> None:
        self.accepted: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.gaps: list[float] = []
        self._addresses, self._key = addresses, key
        self._left = iter(range(count))
        self._closed = threading.Event()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._call()))
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    async def _call(self) -> None:
        async with (
            AsyncClient(self._addresses, self._key, timeout_s=TIMEOUT_S, resends=0) as client,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(CALLERS):
                tasks.create_task(self._submit_all(client))

    async def _submit_all(self, client: AsyncClient) -> None:
        for number in self._left:
            while not self._closed.is_set():
                try:
                    job = await client.run("echo", {"n": number}, idempotency_key=f"job-{number}")
                except ClientError as error:
                    why = f"{getattr(error, 'status', type(error).__name__)}"
                    self.refused[why] = self.refused.get(why, 0) + 1
                    await asyncio.to_thread(self._closed.wait, AGAIN_S)
                    continue
                now = time.monotonic()
                self.gaps.append(now - self._last)
                self._last, self.accepted[job.id] = now, number
                break


class Pair:
    """Two controls with data folders of their own, as on two hosts; `leader` is the name of one."""

    def __init__(self, stack: Stack, ports: dict[str, tuple[int, int]]) -> None:
        self.stack, self._ports = stack, ports
        self.leader = NAMES[0]
        self._ready: dict[str, int] = {}
        self._variables = stack._control_variables() | {"STOKER_SECRET_KEY": Fernet.generate_key().decode()}
        self.http = ",".join(f"http://127.0.0.1:{http}" for http, _ in ports.values())
        self.grpc = ",".join(f"127.0.0.1:{grpc}" for _, grpc in ports.values())

    @property
    def spare(self) -> str:
        return NAMES[self.leader == NAMES[0]]

    def start(self, name: str) -> None:
        """Starts a control that waits, and leads where no other one does."""
        http, grpc = self._ports[name]
        command = ["control", "--config", str(self.stack.config), "--data-dir", str(self.stack.folder / name)]
        command += ["--port", str(http), "--grpc-port", str(grpc), "--standby"]
        self._ready[name] = self.stack._spawn(command, name, self._variables)

    def waits(self, name: str, times: int) -> None:
        line = "waiting for it to end"
        until(lambda: self.stack.log(name).count(line) >= times, START_S, f"a {name} that waits")

    def leads(self, name: str) -> None:
        self.stack.facts = self.stack._ready(getattr(self.stack, name), self._ready.pop(name), name)
        self.stack._call_control()
        self.leader = name

    def agent(self, name: str) -> None:
        """Starts an agent that knows both."""
        command = ["agent", "--control", self.grpc, "--data-dir", str(self.stack.folder / name)]
        started, _ = self.stack._start([*command, "--name", name], name, {})
        setattr(self.stack, name, started)


@contextmanager
def service(folder: Path, server: PostgresServer) -> Iterator[Pair]:
    stack = Stack(folder, ENDPOINT, database=server.fresh())
    with kept_port() as a, kept_port() as b, kept_port() as c, kept_port() as d:
        ports = [held.getsockname()[1] for held in (a, b, c, d)]
        pair = Pair(stack, dict(zip(NAMES, [(ports[0], ports[1]), (ports[2], ports[3])], strict=True)))
        try:
            pair.start(NAMES[0])
            pair.leads(NAMES[0])
            pair.start(NAMES[1])
            for agent in ("agent", "another"):
                pair.agent(agent)
            pair.waits(NAMES[1], 1)
            yield pair
        except BaseException:
            for name in stack.logged():
                print(f"--- {name}.log\n{stack.end_of_log(name)}")
            raise
        finally:
            stack._ended("another")
            stack.stop()


def replaced(pair: Pair, end: Callable[[Any], None]) -> float:
    """Ends the leader by `end`; returns after how many seconds a new job had run at the other one."""
    began = time.monotonic()
    end(getattr(pair.stack, pair.leader))
    with Client(pair.http, pair.stack.key, timeout_s=TIMEOUT_S, resends=5) as client:
        pair.leads(pair.spare)
        assert client.runsync("echo", {"n": -1}, wait_ms=60_000).output == {"n": -1}
    return time.monotonic() - began


def killed(process: Any) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def stopped(process: Any) -> None:
    process.send_signal(signal.SIGSTOP)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("jobs", "paused_s"), [(500, 0.0), (5000, PAUSED_S)], ids=["few", "many"])
def test_each_job_ends_once_whatever_ends_meanwhile(tmp_path: Path, jobs: int, paused_s: float) -> None:
    server = PostgresServer()
    try:
        with service(tmp_path, server) as pair:
            stack, callers = pair.stack, Callers(pair.http, pair.stack.key, jobs)
            try:
                of_before = play(pair, server, callers, jobs, paused_s)
                until(lambda: len(callers.accepted) == jobs, 4 * START_S, f"{jobs} jobs")
            finally:
                callers.close()
            wanted = jobs + of_before
            until(lambda: stack.health("echo")["jobs"]["completed"] >= wanted, 4 * START_S, "all ends")
            found = stack.health("echo")["jobs"]
            assert found["completed"] == wanted, "one end for each, and no more"
            assert found["inQueue"] == found["inProgress"] == found["failed"] == 0
            assert sorted(callers.accepted.values()) == list(range(jobs)), "none lost, and none made twice"
            with Client(pair.http, stack.key, resends=5) as client:
                for job, number in callers.accepted.items():
                    assert client.status("echo", job).output == {"n": number}
            if paused_s:
                assert max(callers.gaps) < paused_s, "callers were served while the leader stood still"
            print(f"refused: {callers.refused}; the longest times in which no job was accepted, in s:")
            print(*(f"{gap:.1f}" for gap in sorted(callers.gaps)[-5:]))
    finally:
        server.close()


def play(pair: Pair, server: PostgresServer, callers: Callers, jobs: int, paused_s: float) -> int:
    """Ends one after the other. Returns how many further jobs it ran."""

    def accepted(share: float) -> None:
        until(lambda: len(callers.accepted) >= share * jobs, 4 * START_S, f"{share:.0%} of the jobs")

    accepted(0.1)
    first = pair.leader
    print(f"leader killed: a new job had run after {replaced(pair, killed):.1f} s")
    pair.start(first)
    accepted(0.3)
    pair.stack.kill("agent")
    pair.agent("agent")
    pair.waits(first, 1)
    accepted(0.5)
    second, began = pair.leader, time.monotonic()
    still = getattr(pair.stack, second)
    print(f"leader stands still: a new job had run after {replaced(pair, stopped):.1f} s")
    until(lambda: time.monotonic() - began >= paused_s, START_S, "the end of the pause")
    still.send_signal(signal.SIGCONT)
    assert still.wait(60) == 1
    assert "another control has taken over the database" in pair.stack.log(second)
    pair.start(second)
    pair.waits(second, 2)
    accepted(0.7)
    server.kill()
    server.start()
    accepted(0.9)
    print(f"leader killed again: a new job had run after {replaced(pair, killed):.1f} s")
    return 3
