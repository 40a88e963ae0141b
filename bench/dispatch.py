"""Compares a no-op job through the whole platform with a plain FastAPI echo, in turns of one second.

    make bench        or        python bench/dispatch.py [--rounds 5] [--workers 1 4 16] [--idle 60]
                                                         [--against COMMIT] [--peers] [--json FILE]

The measured path is HTTP -> store (SQLite, synchronous=FULL) -> gRPC -> agent -> worker process -> back; each
response is sent after the fsync of its outcome. The limit is one POST to a FastAPI route that echoes its
body. wrk makes the load on the same machine, with 1 and 32 connections. For each number of workers, all
services run at once and take turns, so a busy machine affects them alike: compare the ratios, and CPU per job
divided by the echo's, which varies least. `--against` adds Stoker at another commit, `--peers` adds LitServe,
Cog and Celery if `.ci/bench-peers` has installed them.

Then it measures the idle gap: how long a worker is idle between two jobs while 32 callers keep jobs of 0, 2,
10 and 50 ms in the queue. In that time a GPU does nothing. Last, the CPU time that control and agent take in
a minute without jobs, with one worker ready.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dispatch_load import Service, Turns, cpu_seconds, drive, idle_gaps_ms, in_turns
from dispatch_services import PEER_SERVICES, echo, installed_peers, stoker, stoker_at
from measured_on import commit, hardware

CONNECTIONS = (1, 32)
JOBS_MS = (0, 2, 10, 50)
GAP_WORKERS = 4
SETTLE_S = 5
"""Until control and agent have done what follows the last job."""


def main() -> None:
    chosen = _options().parse_args()
    if shutil.which("wrk") is None:
        print("skipped: wrk is not installed (Debian: apt-get install wrk)")
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, {python_build()}")
    peers = installed_peers() if chosen.peers else []
    figures = [
        figure
        for workers in chosen.workers
        for figure in measure(workers, chosen.rounds, chosen.against, peers)
    ]
    gaps = {} if chosen.no_gaps else measure_gaps(chosen.seconds)
    idle = measure_idle(chosen.idle, chosen.against) if chosen.idle else {}
    if chosen.json:
        chosen.json.write_text(json.dumps(_record(figures, gaps, idle), indent=2) + "\n")


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5, help="turns of one second for each service")
    options.add_argument("--seconds", type=int, default=3, help="how long the load for each idle gap lasts")
    options.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16])
    options.add_argument("--against", help="another commit of this repository to compare with")
    options.add_argument("--peers", action="store_true")
    options.add_argument("--no-gaps", action="store_true")
    options.add_argument("--idle", type=int, default=60, help="seconds without jobs; 0: none")
    options.add_argument("--json", type=Path, help="write the figures here")
    return options


def python_build() -> str:
    """An interpreter built without profile-guided optimization takes 10 to 30 % more."""
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    how = [name for name in ("--enable-optimizations", "--with-lto") if name in options]
    return f"Python {platform.python_version()} built with {' and '.join(how) or 'no optimizations'}"


def measure(workers: int, rounds: int, against: str | None, peers: Sequence[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        services = [
            stack.enter_context(echo(folder)),
            stack.enter_context(stoker(folder / "now", workers)),
        ]
        if against:
            services.append(stack.enter_context(stoker_at(against, folder, workers)))
        services += [stack.enter_context(PEER_SERVICES[name](folder, workers)) for name in peers]
        for service in services:
            drive(service, 8, 2)
        found = [one for c in CONNECTIONS for one in _compared(in_turns(services, c, rounds), workers)]
    for figure in found:
        print(_line(figure))
    return found


def _compared(turns: Sequence[Turns], workers: int) -> list[dict[str, Any]]:
    """The figures of each service, compared with the echo, which is the first."""
    limit = turns[0]
    return [
        {
            "service": one.service,
            "workers": None if one is limit else workers,
            "connections": one.connections,
            "p50_ms": one.p50,
            "p99_ms": one.p99,
            "per_second": one.per_second,
            "cpu_us": one.cpu_us,
            "cpu_us_by_process": one.cpu_by_process,
            "p50_ratio": one.p50 / limit.p50,
            "rate_ratio": one.per_second / limit.per_second,
            "cpu_ratio": one.cpu_us / limit.cpu_us,
        }
        for one in turns
    ]


def _line(figure: dict[str, Any]) -> str:
    name = figure["service"] + (f", {figure['workers']} workers" if figure["workers"] else "")
    parts = figure["cpu_us_by_process"]
    cpu = ", ".join(f"{part} {value:.0f}" for part, value in parts.items()) if len(parts) > 1 else ""
    return (
        f"{name:<30} {figure['connections']:>3} conn  p50 {figure['p50_ms']:7.2f} ms = "
        f"{figure['p50_ratio']:5.1f} x  {figure['per_second']:7.0f}/s = {figure['rate_ratio']:.3f} x  "
        f"CPU {figure['cpu_us']:5.0f} us = {figure['cpu_ratio']:4.1f} x  {cpu}"
    )


def measure_gaps(seconds: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as temporary, stoker(Path(temporary) / "now", GAP_WORKERS) as service:
        drive(service, 8, 2)
        return {f"{ms} ms": _gaps(service, ms, seconds, Path(temporary)) for ms in JOBS_MS}


def _gaps(service: Service, ms: int, seconds: int, folder: Path) -> dict[str, float]:
    answers = folder / f"answers-{ms}"
    job = replace(service, body=json.dumps({"input": {"ms": ms}}))
    turn = drive(job, 32, seconds, answers)
    gaps = idle_gaps_ms(answers)
    figures = {"p50_ms": statistics.median(gaps), "p99_ms": gaps[int(len(gaps) * 0.99)]}
    # The share of the time in which the workers were in a job.
    share = turn.per_second * ms / 1000 / GAP_WORKERS
    print(
        f"idle gap of {GAP_WORKERS} workers between jobs of {ms:>2} ms: p50 {figures['p50_ms']:.2f} ms, "
        f"p99 {figures['p99_ms']:.2f} ms" + (f"; busy {share:.0%} of the time" if ms else "")
    )
    return figures | ({"busy": share} if ms else {})


def measure_idle(seconds: int, against: str | None) -> dict[str, dict[str, float]]:
    """The CPU seconds of each process of a service with one ready worker and no jobs, by service."""
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        services = [stack.enter_context(stoker(folder / "now", 1))]
        if against:
            services.append(stack.enter_context(stoker_at(against, folder, 1)))
        for service in services:
            drive(service, 8, 1)
        time.sleep(SETTLE_S)
        before = [cpu_seconds(service) for service in services]
        time.sleep(seconds)
        after = [cpu_seconds(service) for service in services]
    spent = {
        service.name: {name: late[name] - early[name] for name in early}
        for service, early, late in zip(services, before, after, strict=True)
    }
    for name, parts in spent.items():
        parts_text = ", ".join(f"{part} {value * 1e3:.0f} ms" for part, value in parts.items())
        print(f"{name}, idle for {seconds} s: CPU {parts_text}")
    return spent


def _record(
    figures: Sequence[dict[str, Any]],
    gaps: dict[str, dict[str, float]],
    idle: dict[str, dict[str, float]],
) -> dict[str, Any]:
    return {
        "commit": commit(
            "../agent",
            "../control",
            "../wire",
            "../worker",
            "dispatch.py",
            "dispatch_load.py",
            "dispatch_services.py",
        ),
        "hardware": hardware() | {"build": python_build()},
        "figures": list(figures),
        "idle_gaps": gaps,
        "idle_cpu_s": idle,
    }


if __name__ == "__main__":
    main()
