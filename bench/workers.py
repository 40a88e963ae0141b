"""Measures jobs per second of one worker of each kind, with one and eight concurrent jobs.

    python bench/workers.py [--json bench/results/workers.json]

The workers are a protocol worker (the stock SDK; needs .peers/python, which .ci/peers makes) and python
workers with a plain and an asynchronous handler. Jobs that do nothing and jobs that wait 20 ms are sent as
fast as slots become free, with the agent's own modules and without control; the time is from the first `run`
to the last `done`. The stock worker sleeps a second whenever all its slots are taken: that limits its rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from measured_on import commit, hardware

from stoker.agent.interfaces import WorkerExit, WorkerProcess
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.sdk_programs.server import ProtocolServer
from stoker.agent.workers.sdk_programs.worker import ProtocolSpawner, SpawnerByKind
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame

ROOT = Path(__file__).parents[1]
STOCK = ROOT / ".peers" / "python" / "bin" / "python"
PROGRAMS = ROOT / "tests" / "handlers_protocol"
HANDLERS = """
import asyncio
import time


def plain(job):
    if job.input["wait_s"]:
        time.sleep(job.input["wait_s"])


async def coroutine(job):
    if job.input["wait_s"]:
        await asyncio.sleep(job.input["wait_s"])
"""
KINDS = {"protocol": "", "plain": "plain", "async": "coroutine"}
AT_ONCE = (1, 8)
WAIT_S = 0.02
ROUNDS = 3


@dataclass(frozen=True)
class Load:
    """`wait_s` is how long a job waits; `jobs` is their number in a round, per slot."""

    name: str
    wait_s: float
    jobs: dict[str, int]

    def input(self, kind: str) -> bytes:
        """The input of a job; the stock worker's handler has an input format of its own."""
        values: dict[str, object] = {"wait_s": self.wait_s}
        if kind == "protocol":
            values = {"do": "sleep", "s": self.wait_s} if self.wait_s else {"do": "return", "value": 1}
        return json.dumps(values).encode()


LOADS = (
    Load("nothing", 0.0, {"protocol": 8, "plain": 1500, "async": 1500}),
    Load("20 ms", WAIT_S, {"protocol": 8, "plain": 40, "async": 40}),
)


@dataclass(frozen=True)
class Rate:
    kind: str
    at_once: int
    load: str
    per_second: float


class Counter:
    """Sends the next job whenever one has ended."""

    def __init__(self, body: bytes) -> None:
        self.process: WorkerProcess
        self.ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._body = body
        self._sent = self._done = self._wanted = 0
        self._over = False

    def on_frame(self, frame: Frame) -> None:
        if frame.kind == "ready":
            self.ready.set()
        elif frame.kind == "failed":
            sys.exit(f"a job failed: {frame.fields['error']}")
        elif frame.kind == "done":
            self._done += 1
            self._send_next()
            if self._done == self._wanted:
                self._ended.set()

    def on_broken(self, why: str) -> None:
        raise SystemExit(f"the worker broke the worker protocol: {why}")

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        if not self._over:
            sys.exit(f"a worker ended: {exit.reason}")
        self._ended.set()

    def _send_next(self) -> None:
        if self._sent < self._wanted:
            self._sent += 1
            fields = {"job": f"j{self._sent}", "attempt": 1, "scratch": "/tmp"}
            self.process.send(Frame("run", fields, self._body))

    async def round(self, jobs: int, at_once: int) -> float:
        """Runs a round and returns its jobs per second."""
        self._ended.clear()
        self._wanted += jobs
        began = time.monotonic()
        for _ in range(at_once):
            self._send_next()
        await self._ended.wait()
        return jobs / (time.monotonic() - began)

    async def end(self) -> None:
        self._over = True
        self._ended.clear()
        self.process.kill()
        await self._ended.wait()


def spec_of(kind: str, at_once: int, handlers: Path) -> WorkerSpec:
    if kind != "protocol":
        return WorkerSpec(f"{kind}-{at_once}", "e", 1, f"{handlers}:{KINDS[kind]}", concurrency=at_once)
    env = {"AT_ONCE": str(at_once)}
    command = (str(STOCK), "mixed.py")
    return WorkerSpec(
        f"p{at_once}", "e", 1, str(PROGRAMS), (), env, at_once, kind="protocol", command=command
    )


async def measure(spawner: SpawnerByKind, kind: str, at_once: int, load: Load, handlers: Path) -> Rate:
    """The median of some rounds on one worker."""
    spec, counter = spec_of(kind, at_once, handlers), Counter(load.input(kind))
    counter.process = spawner.spawn(spec, None, counter)
    setup = {"handler": spec.handler, "device": None, "concurrency": at_once}
    counter.process.send(Frame("setup", setup))
    await counter.ready.wait()
    jobs = load.jobs[kind] * at_once
    rates = [await counter.round(jobs, at_once) for _ in range(ROUNDS)]
    await counter.end()
    return Rate(kind, at_once, load.name, round(median(rates), 2))


async def measure_all(kinds: list[str], folder: Path) -> list[Rate]:
    """`folder` holds the handlers, and gets the agent's data."""
    local = LocalSpawner(folder / "agent")
    spawner = SpawnerByKind(local, protocol=lambda: ProtocolSpawner(local, ProtocolServer()))
    rates = [
        await measure(spawner, kind, at_once, load, folder / "handlers.py")
        for load in LOADS
        for kind in kinds
        for at_once in AT_ONCE
    ]
    await spawner.close()
    return rates


def ratios(rates: list[Rate]) -> dict[str, float]:
    """The ratios of eight concurrent jobs to one, and of each python worker to the stock one."""
    found = {(rate.load, rate.kind, rate.at_once): rate.per_second for rate in rates}
    result = {}
    few, many = AT_ONCE
    for (load, kind, at_once), rate in found.items():
        if at_once == many:
            result[f"{load}: {kind}, {many} at once / {few}"] = rate / found[load, kind, few]
        if kind != "protocol" and (load, "protocol", at_once) in found:
            result[f"{load}: {kind} / protocol, {at_once} at once"] = rate / found[load, "protocol", at_once]
    return {name: round(ratio, 2) for name, ratio in result.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path, help="write the figures here")
    chosen = options.parse_args()
    kinds = list(KINDS)
    if not STOCK.exists():
        print(f"without the protocol worker: there is no {STOCK.relative_to(ROOT)}; .ci/peers makes it")
        kinds.remove("protocol")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "handlers.py").write_text(HANDLERS)
        rates = asyncio.run(measure_all(kinds, Path(folder)))
    for rate in rates:
        print(f"{rate.load:8} {rate.kind:9} {rate.at_once} at once: {rate.per_second:9.2f} jobs/s")
    for name, ratio in ratios(rates).items():
        print(f"{name}: {ratio} x")
    if chosen.json:
        figures = {
            "commit": commit("../agent", "../wire", "../worker", "workers.py"),
            "hardware": hardware(),
            "rates": [asdict(rate) for rate in rates],
            "ratios": ratios(rates),
        }
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
