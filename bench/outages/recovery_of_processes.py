"""The times until work continues after the loss of an agent, control or a host: a part of
`bench/outages/recovery.py`.

    agent     killed by SIGKILL and started again at once, as by a supervisor: until its job's next attempt
              begins
    control   the same: until a client gets a response, and until a new job begins
    standby   control is killed, and a standby waits: the same. Restarted: control gets SIGTERM, and is
              started again when it has ended, or a standby waits; until a submission is accepted
    host      its agent is stopped by SIGSTOP; control waits for SILENCE_S on purpose: until the job's next
              attempt begins on another host

The limit of the first three is the time of their program's imports in a new interpreter. The limit of the
last is the start of an interpreter: after control's wait, the other host must start a worker.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.control.nodes.session import SILENCE_S
from tests.system.stack import Stack, queue_endpoint, running

WAITS = queue_endpoint("waits", "cancelling/stuck_as_told.py")
HOST_ROUNDS = 2
"""Each takes more than a minute."""


@dataclass(frozen=True)
class Loss:
    """`figure_ms`: the first recorded value of `next`, which it must not exceed. `limit`: the limit's
    name."""

    name: str
    measure: Callable[[Path], float]
    figure_ms: float
    limit: str
    grace_s: float = 0.0
    by: str = "SIGKILL"


def agent_killed(folder: Path) -> float:
    with running(folder, WAITS, executed=True) as stack:
        job = running_job(stack)
        with since() as took:
            stack.kill("agent")
            stack.start_agent()
            return took(begin_of_last_attempt(stack, job))


def control_answers(folder: Path) -> float:
    with running(folder, WAITS, executed=True) as stack:
        job = running_job(stack)
        with since() as took:
            stack.kill("control")
            stack.start_control()
            stack.status("waits", job)
            return took(time.monotonic())


def control_runs(folder: Path) -> float:
    """For a job on another worker than the one that is always busy."""
    with running(folder, WAITS.replace("workersMax = 1", "workersMax = 2"), executed=True) as stack:
        running_job(stack)
        with since() as took:
            stack.kill("control")
            stack.start_control()
            return took(begin_of_last_attempt(stack, stack.run("waits", {})))


def standby_answers(folder: Path) -> float:
    with running(folder, WAITS, executed=True) as stack:
        job = running_job(stack)
        stack.start_standby()
        with since() as took:
            stack.kill("control")
            stack.standby_leads()
            stack.status("waits", job)
            return took(time.monotonic())


def standby_runs(folder: Path) -> float:
    with running(folder, WAITS.replace("workersMax = 1", "workersMax = 2"), executed=True) as stack:
        running_job(stack)
        stack.start_standby()
        with since() as took:
            stack.kill("control")
            stack.standby_leads()
            return took(begin_of_last_attempt(stack, stack.run("waits", {})))


def control_restarted(folder: Path) -> float:
    with running(folder, WAITS, executed=True) as stack:
        running_job(stack)
        with since() as took:
            stack.end_control()
            stack.start_control()
            stack.run("waits", {})
            return took(time.monotonic())


def restarted_with_a_standby(folder: Path) -> float:
    with running(folder, WAITS, executed=True) as stack:
        running_job(stack)
        stack.start_standby()
        with since() as took:
            stack.end_control()
            stack.standby_leads()
            stack.run("waits", {})
            return took(time.monotonic())


def host_silent(folder: Path) -> float:
    with running(folder, WAITS, executed=True) as stack:
        job = running_job(stack)
        with another_agent(stack), since() as took:
            stack.agent.send_signal(signal.SIGSTOP)
            return took(begin_of_last_attempt(stack, job))


LOSSES = [
    Loss("agent killed, started again", agent_killed, 3100.0, "agent_ms"),
    Loss("control killed: an answer", control_answers, 3800.0, "control_ms"),
    Loss("control killed: a new job", control_runs, 3800.0, "control_ms"),
    Loss("standby: an answer", standby_answers, 338.0, "control_ms"),
    Loss("standby: a new job", standby_runs, 663.0, "control_ms"),
    Loss("control restarted: a submission", control_restarted, 3999.0, "control_ms", by="SIGTERM"),
    Loss("standby, restarted: a submission", restarted_with_a_standby, 597.0, "control_ms", by="SIGTERM"),
    Loss("host silent", host_silent, 63_000.0, "interpreter_ms", SILENCE_S, by="SIGSTOP"),
]


def running_job(stack: Stack) -> str:
    """Starts a job that runs until its worker ends; its second attempt only returns when it began."""
    job = stack.run("waits", {"do": "asks", "note": str(stack.folder / "note")})
    stack.first_chunk("waits", job)
    return job


def begin_of_last_attempt(stack: Stack, job: str) -> float:
    """The time at which the job's last attempt began."""
    record = stack.end_of("waits", job)
    assert record["status"] == "COMPLETED", record
    return float(record["output"]["began"])


@contextmanager
def since() -> Iterator[Callable[[float], float]]:
    """Yields a function that turns a time into milliseconds since the start of the block."""
    began = time.monotonic()
    yield lambda at: (at - began) * 1000


@contextmanager
def another_agent(stack: Stack) -> Iterator[None]:
    """Runs a second host. At the end it is the only one: the first is killed."""
    first = stack.agent
    folder = str(stack.folder / "another")
    stack.agent, _ = stack._start(
        ["agent", "--control", stack.facts["grpc"], "--data-dir", folder], "another", {}
    )
    second, stack.agent = stack.agent, first
    try:
        yield
    finally:
        first.kill()
        first.wait()
        stack.agent = second


def limits(rounds: int) -> dict[str, float]:
    return {
        f"{name}_ms": round(statistics.median(imported(name) for _ in range(rounds)), 1)
        for name in ("agent", "control")
    }


def imported(name: str) -> float:
    """The milliseconds until a new interpreter has imported the modules of this process."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-P", "-c", f"import stoker.cli.{name}.process"], check=True)
    return (time.monotonic() - began) * 1000


def lost(loss: Loss, rounds: int, limit_of: dict[str, float]) -> dict[str, Any]:
    """Measures without GPUs: a host's CPU device may have several workers."""
    times = []
    for _ in range(min(rounds, HOST_ROUNDS) if loss.grace_s else rounds):
        with tempfile.TemporaryDirectory() as folder:
            times.append(loss.measure(Path(folder)))
        print(".", end="", flush=True, file=sys.stderr)
    following = statistics.median(times)
    behind = following - loss.grace_s * 1000
    return {
        "case": loss.name,
        "by": loss.by,
        "stopped_ms": None,
        "device_ms": None,
        "next_ms": round(following, 1),
        "worst_next_ms": round(max(times), 1),
        "grace_ms": loss.grace_s * 1000,
        "behind_ms": round(behind, 1),
        "over_limit": round(behind / limit_of[loss.limit], 1),
        "of_figure": round(following / loss.figure_ms, 2),
        "target_ms": loss.figure_ms - loss.grace_s * 1000,
    }
