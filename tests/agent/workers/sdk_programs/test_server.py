"""The worker protocol as a program meets it: real requests over loopback, with no program behind them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from stoker.agent.interfaces import WorkerExit
from stoker.agent.workers.processes.spawn_request import Program
from stoker.agent.workers.sdk_programs import protocol_machine
from stoker.agent.workers.sdk_programs.server import ProtocolServer
from stoker.agent.workers.sdk_programs.worker import ProtocolProcess, ProtocolSpawner
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame

BODY = {"content-type": "application/x-www-form-urlencoded", "x-request-id": "a job of before"}
"""As the stock worker sends them: neither says what it should."""


class Child:
    """What a program's process is told."""

    pid = 1

    def __init__(self) -> None:
        self.signals: list[str] = []

    def terminate(self) -> None:
        self.signals.append("TERM")


class Programs:
    """Starts nothing."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.processes: list[Any] = []

    def spawn(self, spec: WorkerSpec, device: Any, watcher: Any, program: Program) -> Any:
        self.keys.append(program.environment["RUNPOD_AI_API_KEY"])
        self.processes.append(watcher)
        return Child()


class Watcher:
    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.exits: list[WorkerExit] = []

    def on_broken(self, why: str) -> None:
        raise AssertionError(why)

    def on_frame(self, frame: Frame) -> None:
        assert not self.exits
        self.frames.append(frame)

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        self.exits.append(exit)

    @property
    def kinds(self) -> list[str]:
        return [frame.kind for frame in self.frames]


class Seat:
    """One program's seat, and the program's side of the wire."""

    def __init__(
        self, server: ProtocolServer, client: httpx2.AsyncClient, worker: str, late_s: float = 0.0
    ) -> None:
        self.key, self.worker, self.client = f"key of {worker}", worker, client
        self.watcher, self.child = Watcher(), Child()
        spec = WorkerSpec(worker, "e1", 1, "/h", concurrency=8, kind="protocol")
        self.process = ProtocolProcess(spec, self.watcher, lambda: server.unregister(self.key), late_s)
        self.process.child = self.child  # type: ignore[assignment]
        server.register(self.key, self.process)

    def get(self, call: str, *, key: str | None = None, **query: Any) -> asyncio.Task[httpx2.Response]:
        headers = {"authorization": self.key if key is None else key}
        url = f"/v2/e1/{call}/{self.worker}"
        return asyncio.create_task(self.client.get(url, params={"gpu": "none", **query}, headers=headers))

    def post(self, call: str, job: str, body: Any) -> asyncio.Task[httpx2.Response]:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        url, headers = f"/v2/e1/{call}/{self.worker}/{job}", {"authorization": self.key, **BODY}
        return asyncio.create_task(self.client.post(url, content=text, headers=headers))

    def run(self, job: str, job_input: Any = None) -> None:
        self.process.send(Frame("run", {"job": job, "attempt": 1}, json.dumps(job_input).encode()))

    async def held(self, count: int = 1) -> None:
        """Until this many polls of it are held."""
        await until(lambda: len(self.process._polls) == count)

    async def open(self, job: str) -> None:
        take = self.get("job-take", job_in_progress=0)
        self.run(job)
        assert (await take).json()["id"] == job
        await until(lambda: self.watcher.kinds[-1:] == ["begun"])


async def until(done: Any) -> None:
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.fixture
async def server() -> AsyncIterator[ProtocolServer]:
    made = ProtocolServer(refuse_s=0.05)
    yield made
    await made.close()


@pytest.fixture
async def client(server: ProtocolServer) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.open(), trust_env=False, timeout=60) as made:
        yield made


@pytest.fixture
async def seat(server: ProtocolServer, client: httpx2.AsyncClient) -> Seat:
    return Seat(server, client, "w1")


async def test_a_take_is_held_until_a_job_comes(seat: Seat) -> None:
    take = seat.get("job-take", job_in_progress=0)
    await until(lambda: seat.watcher.kinds == ["ready"])
    assert not take.done()
    seat.run("j1", {"prompt": "é"})
    answer = await take
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {"id": "j1", "input": {"prompt": "é"}}
    await until(lambda: seat.watcher.kinds == ["ready", "begun"])


async def test_a_batch_is_a_list_within_its_size(seat: Seat) -> None:
    for number in range(3):
        seat.run(f"j{number}")
    answer = await seat.get("job-take-batch", batch_size=2, job_in_progress=0)
    assert [job["id"] for job in answer.json()] == ["j0", "j1"]
    answer = await seat.get("job-take-batch", batch_size="many", job_in_progress=1)
    assert [job["id"] for job in answer.json()] == ["j2"], "a size that is none counts as one"


async def test_polls_end_with_204(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_machine, "TAKE_HOLD_S", 0.01)
    monkeypatch.setattr(protocol_machine, "STOP_HOLD_S", 0.01)
    for call in ("job-take", "job-take-batch", "job-stop"):
        answer = await seat.get(call)
        assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("key", ["", "wrong", "key of w2", "Bearer key of w2"])
async def test_a_wrong_key_is_refused_slowly(server: ProtocolServer, seat: Seat, key: str) -> None:
    Seat(server, seat.client, "w2")
    began = asyncio.get_running_loop().time()
    answer = await seat.get("job-take", key=key)
    assert answer.status_code == 401
    assert asyncio.get_running_loop().time() - began > 0.04
    assert seat.watcher.frames == []


async def test_each_process_has_a_key_of_its_own(server: ProtocolServer, seat: Seat) -> None:
    """Also of one worker: what a former process still sends is nobody's."""
    programs = Programs()
    spec = WorkerSpec("w9", "e1", 1, "/h", kind="protocol", command=("python", "h.py"))
    for _ in range(2):
        ProtocolSpawner(programs, server).spawn(spec, None, Watcher())
    seat.worker = spec.worker
    first, second = programs.keys
    assert first != second
    assert min(len(first), len(second)) >= 32
    programs.processes[0].on_exit(WorkerExit(0, "exited with code 0"))
    assert (await seat.get("ping", key=first)).status_code == 401
    assert (await seat.get("ping", key=second)).status_code == 200


@pytest.mark.parametrize("call", ["job-done", "job-stream"])
async def test_a_worker_ends_no_job_of_another(server: ProtocolServer, seat: Seat, call: str) -> None:
    other = Seat(server, seat.client, "w2")
    await seat.open("j1")
    before = list(seat.watcher.frames)
    assert (await other.post(call, "j1", {"output": "mine"})).status_code == 200, "told, and ignored"
    other.worker = "w1"  # by its path, with the key of w2
    assert (await other.post(call, "j1", {"output": "mine"})).status_code == 401
    assert seat.watcher.frames == before
    assert other.watcher.frames == []


async def test_a_bearer_key_will_do(seat: Seat) -> None:
    assert (await seat.get("ping", key=f"Bearer {seat.key}")).status_code == 200


async def test_what_the_protocol_has_not(seat: Seat) -> None:
    answer = await seat.get("job-steal")
    assert (answer.status_code, answer.text) == (404, "the worker protocol has no GET /v2/e1/job-steal/w1")
    answer = await seat.client.post("/v2/e1/job-take/w1", headers={"authorization": seat.key})
    assert answer.status_code == 405


async def test_results_of_jobs_that_are_not_open_are_taken_and_ignored(seat: Seat) -> None:
    for body in ({"output": 1}, {"error": "x"}, {"status": "IN_PROGRESS", "output": 1}, b"no json", b""):
        assert (await seat.post("job-done", "j9", body)).status_code == 200
        assert (await seat.post("job-stream", "j9", body)).status_code == 200
    assert seat.watcher.frames == []


async def test_a_result_twice_counts_once(seat: Seat) -> None:
    await seat.open("j1")
    for value in (1, 2):
        assert (await seat.post("job-done", "j1", {"output": value})).status_code == 200
    assert [(frame.kind, frame.body) for frame in seat.watcher.frames[2:]] == [("done", b"1")]


async def test_a_result_over_the_limit_fails_its_job(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.agent.workers.sdk_programs.server.BODY_MAX", 1000)
    monkeypatch.setattr("stoker.agent.workers.sdk_programs.server.ENVELOPE", 0)
    await seat.open("j1")
    assert (await seat.post("job-done", "j1", {"output": "x" * 1_000_000})).status_code == 200
    assert seat.watcher.frames[-1].fields["error"].startswith("the worker posted 1000014 bytes")


async def test_a_post_is_answered_when_its_frames_arrived(seat: Seat) -> None:
    await seat.open("j1")
    seat.process.pause()
    progress = seat.post("job-done", "j1", {"status": "IN_PROGRESS", "output": 1})
    await until(lambda: seat.process._frames)
    done = seat.post("job-done", "j1", {"output": 2})
    await until(lambda: len(seat.process._frames) == 2)
    assert "done" not in seat.watcher.kinds
    seat.process.resume()
    assert [(await post).status_code for post in (progress, done)] == [200, 200]
    assert seat.watcher.kinds[2:] == ["progress", "done"]


async def test_a_large_chunk_is_answered_when_it_was_taken(seat: Seat) -> None:
    await seat.open("j1")
    post = seat.post("job-stream", "j1", {"output": "x" * 1_500_000})
    await until(lambda: "chunk" in seat.watcher.kinds)
    assert not post.done()
    seat.process.send(Frame("took", {"job": "j1", "attempt": 1, "n": 0}))
    assert (await post).status_code == 200


async def test_a_stop_is_sent_at_once(seat: Seat) -> None:
    await seat.open("j1")
    stops = seat.get("job-stop")
    await seat.held()
    seat.process.send(Frame("cancel", {"job": "j1", "attempt": 1}))
    assert (await stops).json() == {"jobsToStop": ["j1"]}


async def test_who_hangs_up_gets_no_job(seat: Seat) -> None:
    take = seat.get("job-take", job_in_progress=0)
    await seat.held()
    take.cancel()
    await seat.held(0)
    seat.run("j1")
    assert (await seat.get("job-take", job_in_progress=0)).json()["id"] == "j1"


async def test_who_hangs_up_as_a_job_comes_gets_none(seat: Seat) -> None:
    """Nobody reads that answer: the job waits for the next poll."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    take = asyncio.create_task(seat.process.take(1, many=False, busy=False, gone=gone))
    await seat.held()
    seat.run("j1")
    gone.set_result(None)
    assert await take == ()
    assert seat.watcher.kinds == ["ready"]
    assert (await seat.get("job-take", job_in_progress=0)).json()["id"] == "j1"


async def test_a_program_that_asks_for_nothing_is_replaced(
    seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing happens at it, so nothing but time can tell."""
    monkeypatch.setattr(protocol_machine, "STUCK_S", 0.01)
    await seat.open("j1")
    assert (await seat.post("job-done", "j1", {"output": 1})).status_code == 200
    seat.run("j2")
    await until(lambda: seat.child.signals)
    await until(lambda: "returned" in seat.watcher.kinds)
    assert seat.watcher.kinds == ["ready", "begun", "done", "retire", "returned"]
    assert seat.watcher.frames[-1].job == "j2"


async def test_a_newer_poll_replaces_an_older_one(seat: Seat) -> None:
    older = seat.get("job-take", job_in_progress=0)
    await seat.held()
    newer = seat.get("job-take", job_in_progress=0)
    assert (await older).status_code == 204
    seat.run("j1")
    assert (await newer).json()["id"] == "j1"


async def test_sigterm_comes_before_the_polls_return(seat: Seat) -> None:
    take, stops = seat.get("job-take", job_in_progress=0), seat.get("job-stop")
    await seat.held(2)
    seat.process.send(Frame("stop"))
    assert seat.child.signals == ["TERM"]
    assert (await take).status_code == 204
    assert (await stops).json() == {"jobsToStop": [""]}


async def test_pings_of_its_own_and_of_an_orphan(seat: Seat) -> None:
    assert (await seat.get("ping", job_id="a,b", runpod_version="1.12.0")).status_code == 200
    assert seat.process.last_ping is not None
    seat.process.on_exit(WorkerExit(0, "exited with code 0"))
    assert (await seat.get("ping", job_id="a,b")).status_code == 401


async def test_a_job_that_pings_no_longer_name_is_lost(seat: Seat) -> None:
    for job in ("j1", "j2"):
        seat.run(job)
    taken = await seat.get("job-take-batch", batch_size=3, job_in_progress=0)
    assert len(taken.json()) == 2
    seat.get("job-take-batch", batch_size=1, job_in_progress=1)
    await seat.held()
    for named in ("j1,j2", "j2", "j2"):
        assert (await seat.get("ping", job_id=named)).status_code == 200
    await until(lambda: seat.watcher.kinds[-1] == "failed")
    assert [f.job for f in seat.watcher.frames if f.kind == "failed"] == ["j1"]


async def test_an_unfit_program_reports_why(seat: Seat) -> None:
    query = {"status": "unhealthy", "check": "cuda", "reason": "no driver"}
    assert (await seat.get("ping", **query)).status_code == 200
    assert seat.watcher.frames[0].fields == {"error": "fitness check cuda failed: no driver"}


async def test_the_exit_comes_last_and_lets_everything_go(seat: Seat) -> None:
    await seat.open("j1")
    seat.process.pause()
    take = seat.get("job-take-batch", batch_size=2, job_in_progress=1)
    partial = seat.post("job-stream", "j1", {"output": "x" * 1_500_000})
    await until(lambda: seat.process._frames)
    seat.process.on_exit(WorkerExit(-9, "killed"))
    assert seat.watcher.kinds[-1] == "chunk"
    assert [ended.status for ended in seat.watcher.exits] == [-9]
    assert (await take).status_code == 204
    assert (await partial).status_code == 200
    seat.run("j2")
    assert seat.watcher.kinds[-1] == "chunk"


async def test_the_end_of_a_job_waits_for_what_is_printed_late(
    server: ProtocolServer, client: httpx2.AsyncClient
) -> None:
    seat = Seat(server, client, "w1", late_s=0.1)
    await seat.open("j1")
    await seat.post("job-stream", "j1", {"output": 1})
    assert seat.watcher.kinds[-1] == "chunk", "this does not"
    began = asyncio.get_running_loop().time()
    assert (await seat.post("job-done", "j1", {"output": 1})).status_code == 200
    assert asyncio.get_running_loop().time() - began >= 0.1
    assert seat.watcher.kinds[-1] == "done"


async def test_what_a_dead_program_printed_is_not_waited_for(
    server: ProtocolServer, client: httpx2.AsyncClient
) -> None:
    """Its process is told to be dead when all of it has come."""
    seat = Seat(server, client, "w1", late_s=1000.0)
    await seat.open("j1")
    post = seat.post("job-done", "j1", {"output": 1})
    await until(lambda: seat.process._frames)
    seat.process.on_exit(WorkerExit(0, "exited with code 0"))
    assert (await post).status_code == 200
    assert seat.watcher.kinds[-1] == "done"
    await until(lambda: seat.watcher.exits)


async def test_a_full_outbox_loses_no_last_frames_of_a_program(seat: Seat) -> None:
    await seat.open("j1")
    seat.process.pause()
    posts = [seat.post("job-stream", "j1", {"output": n}) for n in range(2)]
    await until(lambda: len(seat.process._frames) == 2)
    original, before = seat.watcher.on_frame, len(seat.watcher.frames)

    def on_frame(frame: Frame) -> None:
        original(frame)
        seat.process.pause()  # as the agent does when it has no room for the next

    seat.watcher.on_frame = on_frame  # type: ignore[method-assign]
    seat.process.on_exit(WorkerExit(-9, "killed"))
    assert seat.watcher.kinds[before:] == ["chunk", "chunk"]
    assert [(await post).status_code for post in posts] == [200, 200]


async def test_a_result_that_is_half_read_at_the_exit_counts(seat: Seat) -> None:
    await seat.open("j1")
    more = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"output": '
        await more.wait()
        yield b"5}"

    url, headers = "/v2/e1/job-done/w1/j1", {"authorization": seat.key, **BODY}
    post = asyncio.create_task(seat.client.post(url, content=slowly(), headers=headers))
    await until(lambda: seat.process._reading)
    seat.process.on_exit(WorkerExit(0, "exited with code 0"))
    assert seat.watcher.exits == []
    more.set()
    assert (await post).status_code == 200
    await until(lambda: seat.watcher.exits)
    assert seat.watcher.kinds[-1] == "done"
