"""Measures how long a worker takes to be ready: forked from a zygote, and in a fresh interpreter, in one run.

    python bench/models/cold_start.py [--rounds 10] [--json bench/results/cold-start.json]

The time is from `spawn` to the worker's `ready` frame, with the agent's real spawner and without loading a
model:

    forked        the zygote has imported what the handler imports (torch and diffusers' FLUX classes)
    fresh         a new interpreter imports the same
    fresh no-op   a new interpreter with a handler that imports nothing

The cases take turns, so that a change of the machine's load affects all of them. Memory is the proportional
set size (PSS) of all processes: what each further worker adds, eight alive at once. The first worker of a set
waits for the zygote; its time is reported separately.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from measured_on import machine

from stoker.agent.host.process_tree.tree import process_table
from stoker.agent.interfaces import WorkerExit, WorkerProcess
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.zygotes.zygotes import ZygoteSpawner
from stoker.models.text_to_image.declaration import PRELOAD
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame

IMPORTS = """
import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from transformers import CLIPTextModel, CLIPTokenizer, T5EncoderModel, T5TokenizerFast
def handler(job):
    return job.input
"""
NOOP = "def handler(job):\n    return job.input\n"
TOGETHER = 8
TARGET_MS, TARGET_RATIO = 50.0, 30.0


@dataclass
class Case:
    handler: str
    preload: tuple[str, ...]


class Watcher:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[float] = loop.create_future()
        self.exit: asyncio.Future[WorkerExit] = loop.create_future()

    def on_frame(self, frame: Frame) -> None:
        if frame.kind == "ready" and not self.ready.done():
            self.ready.set_result(time.perf_counter())

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        self.exit.set_result(exit)
        if not self.ready.done():
            self.ready.set_exception(RuntimeError(f"the worker was never ready: {exit}"))


class Bench:
    def __init__(self, folder: Path) -> None:
        self.spawner = ZygoteSpawner(LocalSpawner(folder / "agent"))
        self.count = 0
        torch, noop = folder / "imports.py", folder / "noop.py"
        torch.write_text(IMPORTS)
        noop.write_text(NOOP)
        self.cases = {
            "forked": Case(f"{torch}:handler", PRELOAD),
            "fresh": Case(f"{torch}:handler", ()),
            "fresh no-op": Case(f"{noop}:handler", ()),
        }

    async def start(self, case: Case) -> tuple[float, WorkerProcess, Watcher]:
        """Starts a worker; the milliseconds until it was ready."""
        self.count += 1
        watcher = Watcher()
        spec = WorkerSpec(f"w{self.count}", "bench", 1, case.handler, preload=case.preload)
        began = time.perf_counter()
        process = self.spawner.spawn(spec, None, watcher)
        process.send(Frame("setup", {"handler": case.handler, "device": None, "concurrency": 1}))
        return (await watcher.ready - began) * 1000, process, watcher

    async def once(self, case: Case) -> float:
        took, process, watcher = await self.start(case)
        process.kill()
        await watcher.exit
        return took

    async def memory(self, case: Case) -> float:
        """MiB of PSS that each worker adds, of TOGETHER workers."""
        before = pss_of_children()
        workers = [await self.start(case) for _ in range(TOGETHER)]
        await asyncio.sleep(1.0)
        added = pss_of_children() - before
        for _, process, watcher in workers:
            process.kill()
            await watcher.exit
        return added / TOGETHER / 1024


def pss_of_children() -> int:
    """KiB of PSS of all processes below this one."""
    table = process_table()
    total = 0
    for pid in [pid for pid, process in table.items() if is_below(pid, table) and not process.zombie]:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total


def is_below(pid: int, table: dict[int, Any]) -> bool:
    while pid in table and pid != os.getpid():
        pid = table[pid].parent
        if pid == os.getpid():
            return True
    return False


async def settle() -> None:
    """Waits for the fork that follows each worker, so that it does not disturb the next measurement."""
    await asyncio.sleep(0.5)


async def measure(folder: Path, rounds: int) -> dict[str, Any]:
    bench = Bench(folder)
    try:
        first = await bench.once(bench.cases["forked"])
        await bench.once(bench.cases["fresh"])  # warms the page cache for both
        times: dict[str, list[float]] = {name: [] for name in bench.cases}
        for _ in range(rounds):
            for name, case in bench.cases.items():
                await settle()
                times[name].append(await bench.once(case))
        memory = {name: await bench.memory(case) for name, case in bench.cases.items()}
    finally:
        await bench.spawner.close()
    return {"first_of_a_set_ms": round(first, 1), **summary(times, memory)}


def summary(times: dict[str, list[float]], memory: dict[str, float]) -> dict[str, Any]:
    ready = {
        name: {
            "p50_ms": round(statistics.median(values), 1),
            "best_ms": round(min(values), 1),
            "worst_ms": round(max(values), 1),
            "pss_mib_per_worker": round(memory[name], 1),
        }
        for name, values in times.items()
    }
    ratio = statistics.median(times["fresh"]) / statistics.median(times["forked"])
    return {"ready": ready, "fresh_over_forked": round(ratio, 1)}


def show(result: dict[str, Any]) -> None:
    print(f"{'worker ready':<14}{'p50 ms':>10}{'best':>10}{'worst':>10}{'PSS MiB per further worker':>30}")
    for name, row in result["ready"].items():
        numbers = (
            f"{row['p50_ms']:>10}{row['best_ms']:>10}{row['worst_ms']:>10}{row['pss_mib_per_worker']:>30}"
        )
        print(f"{name:<14}{numbers}")
    print(f"first worker of a set, which waits for the zygote: {result['first_of_a_set_ms']} ms")
    forked, ratio = result["ready"]["forked"]["p50_ms"], result["fresh_over_forked"]
    print(
        f"forked is {ratio}x faster than fresh (target {TARGET_RATIO}x, at most {TARGET_MS} ms: {forked} ms)"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    about = machine("../agent", "../models", "../worker", "models/cold_start.py")
    with tempfile.TemporaryDirectory() as folder:
        result = {"machine": about, **asyncio.run(measure(Path(folder), options.rounds))}
    show(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    forked = result["ready"]["forked"]["p50_ms"]
    return 0 if forked <= TARGET_MS and result["fresh_over_forked"] >= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
