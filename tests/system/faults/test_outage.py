"""A minute without control, in real time: what finished is delivered, once; what runs on is stopped in time.

    seconds  0         30               40..46             48             60
    control  killed ───────────────────────────────────────────────────── started again
    agent    keeps the results          stops what runs    killed, or not
    jobs     early     late finished    over is stopped                   over runs again, queued runs

Two platforms side by side go through it: in one of them the agent is killed, too, while control is away,
and all that is left of its results is its outbox on the disk.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from stoker.agent.jobs.reports.outbox_file import OutboxFile, decode
from stoker.wire.messages import Outcome
from tests.system.stack import Stack, fetched, files_below, queue_endpoint, running, until

OUTAGE_S = 60.0
LEASE_S = 45.0
BEAT_S = 5.0
ACKED_S = 4.0
"""The last beat that was acknowledged may be older than one beat, on a slow machine."""

STOPPING_S = 10.0
"""A look at the lease each second, the handler's answer to the cancel frame, and a slow machine. What runs on
must be stopped before control may give it to another, which is when the outage ends."""

PATIENCE_S = 20.0

ENDPOINT = queue_endpoint("waits", "recording/first_attempt_waits.py", workersMin=3, workersMax=3)
MAKES = queue_endpoint("makes", "recording/mixed_work.py")
RUNNING = ("early", "late", "over")


class Platform:
    """One stack with four jobs: three run, one waits for a worker."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.jobs = {name: self._submit(name) for name in RUNNING}
        for job in self.jobs.values():
            stack.first_chunk("waits", job)
        self.jobs["queued"] = self._submit("queued")
        self._down_since = 0.0

    def _submit(self, name: str) -> str:
        folder = self.stack.folder
        go = "/" if name == "queued" else str(folder / f"{name}.go")
        return self.stack.run("waits", {"go": go, "runs": str(folder / f"{name}.runs")})

    def runs(self, name: str) -> list[str]:
        return (self.stack.folder / f"{name}.runs").read_text().split()

    # -- the outage

    def kill_control(self) -> None:
        self.stack.kill("control")
        self._down_since = time.monotonic()

    @property
    def down_s(self) -> float:
        return time.monotonic() - self._down_since

    def wait_until(self, seconds: float) -> None:
        until(lambda: self.down_s >= seconds, OUTAGE_S, f"second {seconds} of the outage")

    def finish(self, name: str) -> None:
        (self.stack.folder / f"{name}.go").touch()
        self.wait_ended(name, PATIENCE_S)

    def ended(self, name: str) -> bool:
        """Its scratch folder goes when its handler has come to an end."""
        return not list((self.stack.folder / "agent" / "scratch").glob(f"*{self.jobs[name]}*"))

    def wait_ended(self, name: str, patience_s: float) -> None:
        until(lambda: self.ended(name), patience_s, f"an end of {name}")

    def wait_kept(self, *names: str) -> None:
        """Their outcomes are on the agent's disk."""
        wanted = {self.jobs[name] for name in names}
        until(lambda: self._on_disk() == wanted, PATIENCE_S, f"the outcomes of {names}", self._on_disk)

    def _on_disk(self) -> set[str]:
        data = OutboxFile(self.stack.folder / "agent" / "outbox").load() or b""
        return {body.job for body in decode(data) if isinstance(body, Outcome)}

    # -- afterwards

    def record(self, name: str) -> dict[str, Any]:
        return self.stack.end_of("waits", self.jobs[name])

    def check(self) -> None:
        records = {name: self.record(name) for name in self.jobs}
        for name in ("early", "late", "queued"):
            assert records[name]["status"] == "COMPLETED", records[name]
            assert records[name]["output"] == {"attempt": 1}
            assert "retries" not in records[name]
            assert self.runs(name) == ["1"], f"{name} was run a second time"
        assert (records["over"]["status"], records["over"]["output"]) == ("COMPLETED", {"attempt": 2})
        assert records["over"]["retries"] == 1
        assert self.runs("over") == ["1", "2"]
        self._check_delivered_once(records)

    def _check_delivered_once(self, records: dict[str, dict[str, Any]]) -> None:
        """Nothing is left to deliver, the records stay as they are, and each was counted once."""
        until(lambda: not self._on_disk(), 60.0, "an empty outbox", self._on_disk)
        assert {name: self.record(name) for name in self.jobs} == records
        jobs = self.stack.http.get("/waits/health").json()["jobs"]
        assert (jobs["completed"], jobs["failed"], jobs["retried"]) == (4, 0, 1)
        assert (jobs["inQueue"], jobs["inProgress"]) == (0, 0)


def go_through(platform: Platform, *, kill_agent: bool, pool: ThreadPoolExecutor) -> None:
    platform.kill_control()
    platform.finish("early")
    platform.wait_kept("early")
    platform.wait_until(30.0)
    platform.finish("late")
    platform.wait_until(LEASE_S - BEAT_S - ACKED_S)
    assert platform.runs("over") == ["1"]
    # A look that comes so late, on a machine that stood still, says nothing.
    early = platform.ended("over") and platform.down_s < LEASE_S - BEAT_S - ACKED_S / 2
    assert not early, "it was stopped before its lease was over"
    platform.wait_ended("over", LEASE_S + STOPPING_S - platform.down_s)
    platform.wait_kept(*RUNNING)
    started: Future[None] | None = None
    if kill_agent:
        platform.stack.kill("agent")
        started = pool.submit(platform.stack.start_agent)  # it is ready when it has reached control
    platform.wait_until(OUTAGE_S)
    platform.stack.start_control()
    if started is not None:
        started.result()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_minute_without_control_loses_no_finished_result_and_runs_none_again(tmp_path: Path) -> None:
    for name in ("kept", "killed"):
        (tmp_path / name).mkdir()
    with (
        running(tmp_path / "kept", ENDPOINT) as kept,
        running(tmp_path / "killed", ENDPOINT) as killed,
        ThreadPoolExecutor(3) as pool,
    ):
        platforms = {False: Platform(kept), True: Platform(killed)}
        outages = [
            pool.submit(go_through, platform, kill_agent=kill, pool=pool)
            for kill, platform in platforms.items()
        ]
        for outage in outages:
            outage.result()
        for platform in platforms.values():
            platform.check()


# ---- the object store -----------------------------------------------------------------------------


def object_store(stack: Stack) -> psutil.Process | None:
    for child in psutil.Process(stack.control.pid).children():
        with contextlib.suppress(psutil.Error):
            if Path(child.exe()).name == "rclone":
                return child
    return None


def arrived(stack: Stack, job: str) -> int:
    """Bytes of the file that are there, under its own name or under one for the time being."""
    found = 0
    for path in files_below(stack.folder / "data" / "objects"):
        with contextlib.suppress(FileNotFoundError):
            found += path.stat().st_size if job in str(path) else 0
    return found


def caught_in_an_upload(stack: Stack, job_input: dict[str, Any], size: int) -> tuple[str, psutil.Process]:
    """A job, and the object store that holds some of its file and was stopped before the rest came. An upload
    that was over by then is let through, and another job is tried."""
    for _ in range(10):
        job = stack.run("makes", job_input)
        until(lambda job=job: arrived(stack, job) > 0, 60.0, "something of the upload", pause_s=0.001)  # type: ignore[misc]
        store = object_store(stack)
        assert store is not None
        store.suspend()
        until(lambda store=store: store.status() == psutil.STATUS_STOPPED, 60.0, "a stopped store")  # type: ignore[misc]
        if 0 < arrived(stack, job) < size:
            return job, store
        store.resume()
        assert stack.end_of("makes", job)["status"] == "COMPLETED"
    raise AssertionError("each of ten uploads was over before the object store could be stopped")


@pytest.mark.slow
def test_an_object_store_killed_in_the_middle_of_an_upload_costs_no_second_run(tmp_path: Path) -> None:
    with running(tmp_path, MAKES) as stack:
        made = b"made for 7" * 12_000_000
        job_input = {"n": 7, "kind": "file", "times": 12_000_000, "runs": str(tmp_path / "runs")}
        job, killed = caught_in_an_upload(stack, job_input, len(made))
        assert stack.status("makes", job)["status"] == "IN_PROGRESS"
        killed.kill()
        record = stack.end_of("makes", job)
        assert (record["status"], record["output"]["attempt"]) == ("COMPLETED", 1), record
        assert [run for run in (tmp_path / "runs").read_text().splitlines() if job in run] == [f"{job} 1"]
        assert fetched(record["output"]["file"]).content == made
        again = object_store(stack)
        assert again is not None
        assert again.pid != killed.pid
        assert "could not be uploaded" in stack.log("agent")
