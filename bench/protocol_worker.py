"""Jobs per second through one protocol worker (the stock SDK) and one python worker, by an agent's own parts.

    python bench/protocol_worker.py        needs .peers/python, which .ci/peers makes

No-op jobs, given as fast as slots become free; from the first job's `run` to the last one's `done`, without
control. The stock worker sleeps a second whenever all its slots are taken: that is its ceiling, not ours.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from stoker.agent.local_process import LocalSpawner
from stoker.agent.protocol_server import ProtocolServer
from stoker.agent.protocol_worker import ByKind, ProtocolSpawner
from stoker.agent.seams import WorkerExit, WorkerProcess
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame

ROOT = Path(__file__).parents[1]
STOCK = ROOT / ".peers" / "python" / "bin" / "python"
HANDLERS = ROOT / "tests" / "handlers"
PROGRAMS = ROOT / "tests" / "handlers_protocol"


class Counter:
    """Gives the next job whenever one has ended."""

    def __init__(self) -> None:
        self.process: WorkerProcess
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self._given = self._done = self._wanted = 0

    def on_frame(self, frame: Frame) -> None:
        if frame.kind == "ready":
            self.ready.set()
        elif frame.kind == "done":
            self._done += 1
            self.give()
            if self._done == self._wanted:
                self.ended.set()

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        if self._done < self._wanted or not self._wanted:
            sys.exit(f"a worker ended: {exit.reason}")
        self.ready.set()
        self.ended.set()

    def give(self) -> None:
        if self._given < self._wanted:
            self._given += 1
            fields = {"job": f"j{self._given}", "attempt": 1, "scratch": "/tmp"}
            self.process.send(Frame("run", fields, b'{"do":"return","value":1}'))

    async def rate(self, jobs: int, at_once: int) -> float:
        await self.ready.wait()
        self._wanted, began = jobs, time.monotonic()
        for _ in range(at_once):
            self.give()
        await self.ended.wait()
        return jobs / (time.monotonic() - began)


async def measure(spawner: ByKind, spec: WorkerSpec, jobs: int) -> float:
    counter = Counter()
    counter.process = spawner.spawn(spec, None, counter)
    setup = {"handler": spec.handler, "device": None, "concurrency": spec.concurrency, "preload": []}
    counter.process.send(Frame("setup", setup))
    rate = await counter.rate(jobs, spec.concurrency)
    counter.process.kill()
    return rate


async def main() -> None:
    if not STOCK.exists():
        sys.exit(f"there is no {STOCK}; .ci/peers makes it")
    with tempfile.TemporaryDirectory() as folder:
        local = LocalSpawner(Path(folder))
        spawner = ByKind(local, lambda: ProtocolSpawner(local, ProtocolServer()))
        told = {}
        for at_once, jobs in ((1, 15), (8, 80)):
            env = {"AT_ONCE": str(at_once)}
            command = (str(STOCK), "mixed.py")
            spec = WorkerSpec(
                f"p{at_once}", "e", 1, str(PROGRAMS), (), env, at_once, kind="protocol", command=command
            )
            told[f"protocol worker, {at_once} at once, jobs/s"] = round(await measure(spawner, spec, jobs), 2)
        spec = WorkerSpec("w", "e", 1, f"{HANDLERS / 'noop.py'}:handler")
        told["python worker, 1 at once, jobs/s"] = round(await measure(spawner, spec, 2000))
        await spawner.close()
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
