"""Measures how soon work continues after a cancel, a timeout, a kill -9, or the loss of the agent, control or
a host.

    python -P bench/outages/recovery.py [--rounds 5] [--json bench/results/recovery.json] [--no-containers]
                                [--only native]

One control, one agent and one worker for each endpoint run as an operator starts them. One job runs, and one
waits for its worker. Milliseconds from the POST /cancel, or from the end of the time limit:

    stopped    until the handler is stopped (its own `finally`), or its process is gone
    device     until every process that it started is gone; nothing if the worker lives on
    next       until the waiting job has begun

    grace      the part of this that the handler gets on purpose: until SIGTERM, or until SIGKILL
    behind     `next` without the grace

"fresh" workers are new interpreters, "forked" ones come from a zygote (`preload`). The limit, in the same
run, is SIGKILL to a process in the same loop, its end, and a new process of the same kind until its first
line; for a container, by the engine's own command. All times are of CLOCK_MONOTONIC. `of figure` is the time
behind the grace relative to the first recorded one (of a silent host: the whole time).
`recovery_of_processes.py` measures the loss of agents, control and hosts.

A GPU belongs to one worker, so the next worker waits until the one before is gone; on a CPU control would
start another worker at once. So this host has GPUs by a fake libnvidia-ml, built with gcc; another endpoint
uses the second one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "bench"), str(ROOT)]
from measured_on import machine  # noqa: E402
from recovery_of_processes import LOSSES, lost  # noqa: E402
from recovery_of_processes import limits as limits_of_processes  # noqa: E402

from stoker.agent.jobs.attempts.attempt_machine import CANCEL_S  # noqa: E402
from stoker.agent.workers.lifecycle.process_machine import StopLadder  # noqa: E402
from tests.container_engine_here import IMAGE, dockerd, make_image  # noqa: E402
from tests.system.stack import Stack, queue_endpoint, running  # noqa: E402

COOPERATIVE_S = CANCEL_S
BY_FORCE_S = COOPERATIVE_S + StopLadder().term_s
TIMEOUT_S = 5.0
"""The shortest executionTimeout that control accepts."""

COOPERATIVE_MS, STUCK_MS, KILLED_MS = 100.0, 1000.0, 200.0
"""Targets: a cooperative cancel to a free worker; a stuck handler's timeout, behind the grace; a kill -9 to
the same job's next start."""

FIGURES = {"native": 130.0, "kill": 150.0}
"""The first recorded milliseconds behind the grace: of a job after a native hang, and of one whose worker was
killed."""

ENDPOINTS = {
    "fresh": queue_endpoint("fresh", "cancelling/stuck_as_told.py"),
    "forked": queue_endpoint("forked", "cancelling/stuck_as_told.py", preload=["json"]),
    "async": queue_endpoint("async", "cancelling/async_stuck_as_told.py"),
}
OTHER = queue_endpoint("other", "outputs/noop.py")
CONTAINED = queue_endpoint(
    "contained", "", imageName=IMAGE, handler="/app/cancelling/stuck_as_told.py:handler"
)


LIMIT_OF = {"fresh": "interpreter_ms", "forked": "fork_ms", "contained": "container_ms"}


@dataclass(frozen=True)
class Case:
    """`grace_s`: how long the handler may take to end. `by`: cancel, timeout or kill."""

    name: str
    endpoint: str
    do: str
    by: str
    grace_s: float = 0.0


@dataclass(frozen=True)
class Times:
    """Milliseconds; `device` is None if the process lives on."""

    stopped: float
    device: float | None
    next: float


CASES = [
    Case("async handler", "async", "waits", "cancel"),
    Case("async handler", "async", "waits", "timeout"),
    Case("Python loop that asks", "fresh", "asks", "cancel"),
    Case("Python loop that asks", "fresh", "asks", "timeout"),
    Case("Python loop that does not", "fresh", "deaf", "cancel", COOPERATIVE_S),
    Case("native loop, fresh", "fresh", "native", "cancel", COOPERATIVE_S),
    Case("native loop, fresh", "fresh", "native", "timeout", COOPERATIVE_S),
    Case("native loop, forked", "forked", "native", "cancel", COOPERATIVE_S),
    Case("native loop, forked", "forked", "native", "timeout", COOPERATIVE_S),
    Case("native, SIGTERM blocked", "forked", "blocked", "cancel", BY_FORCE_S),
    Case("native, SIGTERM blocked", "forked", "blocked", "timeout", BY_FORCE_S),
    Case("subprocess tree, fresh", "fresh", "tree", "cancel", COOPERATIVE_S),
    Case("subprocess tree, fresh", "fresh", "tree", "timeout", COOPERATIVE_S),
    Case("kill -9, fresh", "fresh", "native", "kill"),
    Case("kill -9, forked", "forked", "native", "kill"),
]
IN_CONTAINERS = [
    Case("native loop, container", "contained", "native", "cancel", COOPERATIVE_S),
    Case("native loop, container", "contained", "native", "timeout", COOPERATIVE_S),
    Case("kill -9, container", "contained", "native", "kill"),
]


# ---- one round -------------------------------------------------------------------------------------


def measure(stack: Stack, case: Case, note: Path) -> Times:
    note.unlink(missing_ok=True)
    policy = {"policy": {"executionTimeout": round(TIMEOUT_S * 1000)}} if case.by == "timeout" else {}
    job = stack.run(case.endpoint, {"do": case.do, "note": str(note)}, **policy)
    first = stack.first_chunk(case.endpoint, job)
    behind = job if case.by == "kill" else stack.run(case.endpoint, {})
    pids = [on_host(pid) if case.endpoint == "contained" else pid for pid in first["pids"]]
    with watched(pids) as fds:
        began = first["began"] + TIMEOUT_S if case.by == "timeout" else time.monotonic()
        if case.by == "cancel":
            stack.http.post(f"/{case.endpoint}/cancel/{job}").raise_for_status()
        elif case.by == "kill":
            os.kill(pids[0], signal.SIGKILL)
        gone = None if case.grace_s == 0 and case.by != "kill" else until_gone(fds)
        after = stack.end_of(case.endpoint, behind)
    assert after["status"] == "COMPLETED", after
    stopped = gone if gone is not None else float(note.read_text())
    device = None if gone is None else (gone - began) * 1000
    return Times((stopped - began) * 1000, device, (after["output"]["began"] - began) * 1000)


@contextlib.contextmanager
def watched(pids: Sequence[int]) -> Iterator[list[int]]:
    fds = [os.pidfd_open(pid) for pid in pids]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def until_gone(fds: Sequence[int]) -> float:
    """Waits for the end of all of them, and returns its time."""
    for fd in fds:
        if not select.select([fd], [], [], 120)[0]:
            raise SystemExit("a process did not go within two minutes")
    return time.monotonic()


def on_host(inside: int) -> int:
    """The host's pid of a process in a container."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found = re.search(r"^NSpid:((?:\t\d+)+)$", (entry / "status").read_text(), re.MULTILINE)
                numbers = found[1].split() if found else []
                if len(numbers) > 1 and int(numbers[-1]) == inside and is_worker(entry):
                    return int(entry.name)
    raise SystemExit(f"there is no process {inside} of a container")


def is_worker(entry: Path) -> bool:
    return b"stoker.worker" in (entry / "cmdline").read_bytes()


# ---- the limit ----------------------------------------------------------------------------------------

FIRST_LINE = "import re, time; print(time.monotonic(), flush=True)"
LOOP = f"{FIRST_LINE}; re.match(r'(a+)+$', 'a' * 60 + 'b')"


def limit_fresh() -> float:
    """SIGKILL to an interpreter in a native loop, and a new one until its first line."""
    command = [sys.executable, "-P", "-c", LOOP]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with start() as first:
        first.stdout.readline()  # type: ignore[union-attr]
        began = time.monotonic()
        first.kill()
        first.wait()
        with start() as second:
            started = float(second.stdout.readline())  # type: ignore[union-attr]
            second.kill()
    return (started - began) * 1000


def limit_forked() -> float:
    """The same with forks of this process."""
    first, _ = fork()
    began = time.monotonic()
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    second, started = fork()
    os.kill(second, signal.SIGKILL)
    os.waitpid(second, 0)
    return (started - began) * 1000


def fork() -> tuple[int, float]:
    """Forks a child that runs a native loop; returns its pid and the time of its first line."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(time.monotonic()).encode())
        re.match(r"(a+)+$", "a" * 60 + "b")
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        return child, float(os.read(pipe.fileno(), 100))


# ---- a host with GPUs ------------------------------------------------------------------------------------


def fake_gpus(folder: Path) -> None:
    """Makes the fake GPUs visible to every agent that this process starts."""
    source = ROOT / "tests" / "agent" / "host" / "devices" / "fake_nvml.c"
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", str(library), str(source)], check=True)
    os.environ |= {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML": "two"}


# ---- all rounds ------------------------------------------------------------------------------------------


def limit_contained(address: str) -> float:
    """The engine's own command, from its start to the first line of a container."""
    command = ["docker", "-H", address, "run", "--rm", "--network=none", IMAGE, "python3", "-c", FIRST_LINE]
    began = time.monotonic()
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return (float(printed) - began) * 1000


def rounds_of(stack: Stack, cases: Sequence[Case], rounds: int) -> dict[tuple[str, str], list[Times]]:
    """The first round of each is not counted: it warms up the zygote and the page cache."""
    note = stack.folder / "note"
    times: dict[tuple[str, str], list[Times]] = {}
    for case in cases:
        count = rounds + 1 if case.by == "kill" or case.grace_s == 0 else rounds
        found = [measure(stack, case, note) for _ in range(count)]
        times[case.name, case.by] = found[-rounds:]
        print(".", end="", flush=True, file=sys.stderr)
    return times


def on_this_host(cases: Sequence[Case], rounds: int) -> dict[tuple[str, str], list[Times]]:
    """Runs a stack for each endpoint, since a GPU must be free for its one worker."""
    times: dict[tuple[str, str], list[Times]] = {}
    for name, endpoint in ENDPOINTS.items():
        its = [case for case in cases if case.endpoint == name]
        if its:
            with (
                tempfile.TemporaryDirectory() as folder,
                running(Path(folder), OTHER, endpoint, executed=True) as stack,
            ):
                stack.runsync("other", {})
                times |= rounds_of(stack, its, rounds)
    return times


def with_containers(
    rounds: int, folder: Path, limits: dict[str, float]
) -> tuple[dict[tuple[str, str], list[Times]], str]:
    """The times, or why there are none."""
    for name in ("LD_LIBRARY_PATH", "FAKE_NVML"):  # a container has no fake GPU
        os.environ.pop(name, None)
    try:
        with dockerd() as address:
            make_image(address)
            os.environ["DOCKER_HOST"] = address
            limits["container_ms"] = median([limit_contained(address) for _ in range(rounds + 1)][1:])
            with running(folder, CONTAINED, executed=True) as stack:
                return rounds_of(stack, IN_CONTAINERS, rounds), ""
    except RuntimeError as why:
        return {}, str(why)


def median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 1) if known else None


def row(case: Case, times: Sequence[Times], limits: dict[str, float]) -> dict[str, Any]:
    following = [one.next for one in times]
    behind = round(statistics.median(following) - case.grace_s * 1000, 1)
    goes_on = case.grace_s == 0 and case.by != "kill"
    return {
        "case": case.name,
        "by": case.by,
        "stopped_ms": median([one.stopped for one in times]),
        "device_ms": median([one.device for one in times]),
        "next_ms": median(following),
        "worst_next_ms": round(max(following), 1),
        "grace_ms": case.grace_s * 1000,
        "behind_ms": behind,
        "over_limit": None if goes_on else round(behind / limits[LIMIT_OF[case.endpoint]], 1),
        "of_figure": of_figure(case, behind),
        "target_ms": target(case),
    }


def of_figure(case: Case, behind: float) -> float | None:
    figure = FIGURES.get("kill" if case.by == "kill" else case.do)
    return None if figure is None or case.endpoint == "contained" else round(behind / figure, 2)


def target(case: Case) -> float | None:
    """The target; None for a container, whose start depends on the engine."""
    if case.endpoint == "contained":
        return None
    if case.by == "kill":
        return KILLED_MS
    return STUCK_MS if case.grace_s else COOPERATIVE_MS


def in_time(line: dict[str, Any]) -> bool:
    return line["target_ms"] is None or line["behind_ms"] <= line["target_ms"]


def show(result: dict[str, Any]) -> None:
    heads = ("stopped", "device", "next", "grace", "behind", "limit", "of figure")
    print(f"\n{'ms':<30}{'by':<9}" + "".join(f"{head:>10}" for head in heads))
    for line in result["rows"]:
        numbers = [line[f"{head}_ms"] for head in heads[:5]]
        cells = ["-" if number is None else f"{number:.1f}" for number in numbers]
        cells += ["-" if line[key] is None else f"{line[key]}x" for key in ("over_limit", "of_figure")]
        late = "" if in_time(line) else f"   over the target of {line['target_ms']:g}"
        print(f"{line['case']:<30}{line['by']:<9}" + "".join(f"{text:>10}" for text in cells) + late)
    print("the limit:", ", ".join(f"{name} {took}" for name, took in result["limits"].items()))
    if result["containers"]:
        print(f"no containers: {result['containers']}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--no-containers", action="store_true")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    options = parser.parse_args(arguments)
    measured = ("../agent", "../control", "../worker", "../wire", "outages")
    rounds, about = options.rounds, machine(*measured)
    limits = {
        "interpreter_ms": round(statistics.median(limit_fresh() for _ in range(rounds)), 1),
        "fork_ms": round(statistics.median(limit_forked() for _ in range(rounds)), 1),
        **limits_of_processes(rounds),
    }
    rows = [lost(loss, rounds, limits) for loss in LOSSES if options.only in loss.name]
    cases = [case for case in CASES if options.only in case.name]
    with tempfile.TemporaryDirectory() as library:
        fake_gpus(Path(library))
        times = on_this_host(cases, rounds)
    why = "left out by --no-containers"
    if not options.no_containers:
        with tempfile.TemporaryDirectory() as folder:
            contained, why = with_containers(rounds, Path(folder), limits)
        times |= contained
        cases += IN_CONTAINERS if contained else []
    rows = [row(case, times[case.name, case.by], limits) for case in cases] + rows
    result = {"machine": about, "rounds": rounds, "limits": limits, "containers": why, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    show(result)
    return 0 if all(map(in_time, rows)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
