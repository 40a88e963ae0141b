"""Measures what a save costs a job: how long its handler waits, and the CPU time of every process.

    python bench/saves.py [--saves 20] [--json bench/results/saves.json]

Control, its object store, an agent and a worker are processes. One job saves again and again, a pause between
two saves, with states of two sizes: a counter, and the save of InfiniteTalk at 480p, which is its state of
1.2 MB and the last two seconds of encoded video at 200 kB a second. A job with the same pauses and no saves
is subtracted. Each figure is a share of the shortest chunk that the model can have: 72 frames in 4 steps of
one forward each at 480p: at 790 TFLOP/s they take 9.5 s. The limit is 1 % of a chunk.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2
import psutil
from dispatch_load import Service
from dispatch_services import stoker
from measured_on import machine

CHUNK_S, LIMIT = 9.5, 0.01
SIZES = {"a counter": 100, "480p": 1_600_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, stoker(Path(folder) / "stoker", 1) as service:
        measure(service, 0, 2)
        idle = measure(service, 0, chosen.saves)
        rows = [row(name, idle, measure(service, size, chosen.saves)) for name, size in SIZES.items()]
    for one in rows:
        print(
            f"{one['state']:<16} waits {one['waits_ms']:7.2f} ms   CPU {one['cpu_ms']:7.2f} ms  {one['by']}"
            f"   {100 * one['share']:.3f} % of a chunk, limit {100 * LIMIT:.0f} %"
        )
    if chosen.json:
        found = {"machine": machine("..", "."), "saves": chosen.saves, "chunk_s": CHUNK_S, "rows": rows}
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(any(one["share"] > LIMIT for one in rows))


def measure(service: Service, size: int, saves: int) -> dict[str, float]:
    """Returns seconds per save: `waits`, of the handler, and the CPU time of each group of processes."""
    before = cpu_s(service)
    job = {"input": {"save_bytes": size, "saves": saves}}
    headers = {"Authorization": service.key}
    url = service.url.replace("/runsync", "/runsync?wait=300000")
    answer = httpx2.post(url, json=job, headers=headers, timeout=400, trust_env=False).json()
    if answer.get("status") != "COMPLETED":
        raise SystemExit(f"the job that saves {size} bytes ended as {answer}")
    spent = {name: seconds - before[name] for name, seconds in cpu_s(service).items()}
    return {
        name: seconds / saves for name, seconds in {"waits": answer["output"]["waited_s"], **spent}.items()
    }


def cpu_s(service: Service) -> dict[str, float]:
    """Returns the CPU time of each group in seconds. The object store is control's only child."""
    groups = dict(service.processes())
    groups["object store"] = groups["control"][0].children()
    return {name: sum(_cpu_s(one) for one in group) for name, group in groups.items()}


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def row(name: str, idle: dict[str, float], found: dict[str, float]) -> dict[str, Any]:
    waits = found.pop("waits") - idle["waits"]
    cpu = {group: round(1000 * max(0.0, seconds - idle[group]), 2) for group, seconds in found.items()}
    cpu_ms = sum(cpu.values())
    share = (waits + cpu_ms / 1000) / CHUNK_S
    return {"state": name, "waits_ms": 1000 * waits, "cpu_ms": cpu_ms, "by": cpu, "share": share}


if __name__ == "__main__":
    main()
