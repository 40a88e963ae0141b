"""One row for each handler: what becomes of it, and the test that every row is put to."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from stoker.wire.messages import Outcome, Progress, WorkerLimits

MIB = 1 << 20
Does = Literal["ends", "is cancelled", "times out"]
"""What happens to its job, once it has reported progress where it is cancelled."""


@dataclass(frozen=True)
class Case:
    file: str
    end: str
    message: str = ""
    lives: bool = False
    does: Does = "ends"
    job_input: Any = None
    limits: WorkerLimits | None = None
    attribute: str = "handler"


def fails(file: str, message: str, **more: Any) -> Case:
    return Case(file, "failed", message, lives=True, **more)


def completes(file: str, **more: Any) -> Case:
    return Case(file, "completed", lives=True, **more)


def dies(file: str, message: str, **more: Any) -> Case:
    return Case(file, "lost", message, **more)


def name(case: Case) -> str:
    return case.file.removesuffix(".py")


def skip_without_room(case: Case) -> None:
    """A container has 64 MiB of shared memory unless it is given more."""
    if isinstance(case.job_input, dict) and str(case.job_input.get("where")).startswith("shm"):
        free = shutil.disk_usage("/dev/shm").free
        if free < case.job_input["size"]:
            pytest.skip(f"/dev/shm has {free // MIB} MiB free, which is too little")


async def of_a_job(zoo: Any, case: Case) -> None:
    skip_without_room(case)
    spec = await zoo.cage(case)
    reported = await zoo.reported(spec)
    assert reported.state == "ready", reported.reason
    knows_pid = '"pid"' in zoo.source(case.file)
    first = await zoo.output(spec, "pid") if knows_pid else None
    outcome = await end(zoo, case, spec)
    assert outcome.end == case.end, outcome
    assert case.message in (outcome.error or ""), outcome
    await zoo.next_job()
    if case.lives:
        assert zoo.lived_on(spec), zoo.control.news(spec.worker)
    else:
        await zoo.lives_again(spec)
    if knows_pid:
        assert (await zoo.output(spec, "pid") == first) == case.lives
    await zoo.free(spec)
    zoo.nothing_is_left()


async def end(zoo: Any, case: Case, spec: Any) -> Outcome:
    job_input = case.job_input if case.job_input is not None else {}
    job = await (zoo.begin(spec, job_input, 0.4) if case.does == "times out" else zoo.begin(spec, job_input))
    if case.does == "is cancelled":
        await zoo.control.until(lambda: zoo.control.about(Progress, job), 30)
        await zoo.control.cancel(job)
    return await zoo.end_of(job)
