"""Processes as an operator starts them, on a host with a stand-in for its driver: a GPU falls off the bus."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.nvml_stand_in import Driver, build
from tests.system.stack import Stack, queue_endpoint, running, until

ENDPOINT = queue_endpoint("waits", "recording/first_attempt_waits.py")
GIB = 1 << 30
PATIENCE_S = 120.0


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    (tmp_path / "nvml").mkdir()
    driver = Driver(build(tmp_path / "nvml"), tmp_path / "nvml" / "state")
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    return driver


def job_input(folder: Path) -> dict[str, str]:
    return {"go": str(folder / "go"), "runs": str(folder / "runs")}


def device_of(pid: int) -> str:
    return psutil.Process(pid).environ()["CUDA_VISIBLE_DEVICES"]


def until_it_waits_for(stack: Stack, job: str, message: str) -> str:
    """The reason, with these words in it."""
    found = [""]

    def waits_for_it() -> bool:
        found.append(str(stack.status("waits", job).get("reason", "")))
        return message in found[-1]

    until(waits_for_it, PATIENCE_S, f"a job that waits, with {message!r}", lambda: found[-1])
    return found[-1]


def until_unhealthy(stack: Stack, unhealthy: dict[str, str]) -> None:
    """Control hears of it from the agent, who hears of it from the driver."""

    def devices() -> object:
        return stack.http.get("/waits/health").json().get("devices")

    until(
        lambda: devices() == {"ill": unhealthy},
        PATIENCE_S,
        f"these devices out of placement: {unhealthy}",
        devices,
    )


@pytest.mark.slow
def test_a_gpu_that_falls_off_the_bus_loses_its_job_to_another(tmp_path: Path, driver: Driver) -> None:
    with running(tmp_path, ENDPOINT) as stack:
        job = stack.run("waits", job_input(tmp_path))
        pid = stack.first_chunk("waits", job)["pid"]
        worker = psutil.Process(pid)
        first = device_of(pid)
        other = "GPU-1" if first == "GPU-0" else "GPU-0"
        driver.tells(f"xid {first[-1]} 79")
        record = stack.end_of("waits", job)
        assert (record["status"], record["output"], record["retries"]) == ("COMPLETED", {"attempt": 2}, 1)
        assert psutil.wait_procs([worker], timeout=PATIENCE_S)[0] == [worker]
        why = "Xid 79: the GPU has fallen off the bus"
        until_unhealthy(stack, {first: why})
        driver.tells(f"xid {first[-1]} 79", f"xid {other[-1]} 79")
        until_unhealthy(stack, {first: why, other: why})
        waiting = stack.run("waits", job_input(tmp_path) | {"go": "/"})
        reported = until_it_waits_for(stack, waiting, "out of placement")
        assert reported.startswith("throttled: no node has a free device: ")
        assert reported.endswith(f"has none free; device GPU-0 is out of placement: {why}, and 1 more")
        stack.kill("agent")
        driver.tells()
        stack.start_agent()  # the host was mended
        assert stack.end_of("waits", waiting)["status"] == "COMPLETED"


@pytest.mark.slow
def test_a_killed_workers_memory_is_waited_for(tmp_path: Path, driver: Driver) -> None:
    with running(tmp_path, ENDPOINT) as stack:
        driver.tells("error 1 15")
        job = stack.run("waits", job_input(tmp_path))
        pid = stack.first_chunk("waits", job)["pid"]
        assert device_of(pid) == "GPU-0"
        driver.tells("error 1 15", f"used 0 {12 * GIB}")
        os.kill(pid, signal.SIGKILL)
        reported = until_it_waits_for(stack, job, "GPU-0 is out of placement")
        assert "12.0 GiB still in use after its worker ended" in reported
        driver.tells("error 1 15")
        assert stack.end_of("waits", job)["output"] == {"attempt": 2}
