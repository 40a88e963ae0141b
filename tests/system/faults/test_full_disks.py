"""No room left, with real disks: callers are told, what was accepted is not lost, all goes on with room."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.system.faults.small_disk import small_disk
from tests.system.stack import Stack, fetched, queue_endpoint, running, until

ECHO = queue_endpoint("echo", "outputs/echo.py")
WAITS = queue_endpoint("waits", "recording/first_attempt_waits.py")
FILE = queue_endpoint("file", "files/file_ok.py")
FILLS = queue_endpoint("fills", "files/fills_scratch.py")
OBJECTS_MIB = 300  # the embedded object store keeps 256 MiB free
PATIENCE_S = 60.0


def refused(answer: httpx2.Response) -> str:
    """The sentence of a 503 that says when to come back."""
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) > 0
    return answer.text


def until_logged(stack: Stack, name: str, message: str, endpoint: str, job: str) -> dict[str, object]:
    """Waits until a part has logged `message`; returns the job as it is after that."""

    def logged() -> bool:
        if message in stack.log(name):
            return True
        record = stack.status(endpoint, job)
        assert record["status"] in {"IN_QUEUE", "IN_PROGRESS"}, record
        return False

    until(logged, PATIENCE_S, f"{message!r} in the log of {name}", lambda: stack.end_of_log(name))
    return stack.status(endpoint, job)


def first_refused(stack: Stack, message: str) -> str:
    """A job of `echo` that the agent refuses with this message. It looks at its disk once a second at most:
    jobs that come sooner are still run."""
    while (job := stack.run("echo", {"x": 1})) and not refused_or_done(stack, message, job):
        pass
    return job


def refused_or_done(stack: Stack, message: str, job: str) -> bool:
    """Waits until either; returns whether it was refused."""

    def known() -> bool:
        return message in stack.log("control") or stack.status("echo", job)["status"] == "COMPLETED"

    until(known, PATIENCE_S, f"{message!r} in the log of control", lambda: stack.end_of_log("control"))
    return message in stack.log("control")


def fill_the_store(stack: Stack) -> tuple[list[str], str]:
    """Submits until the smallest job is refused; returns the ids that were accepted until then, and the
    sentence. A large one is refused while there may be room for what an end needs."""
    accepted = []
    for job_input in ({"x": "y" * 4000}, {}):
        while (answer := stack.http.post("/echo/run", json={"input": job_input})).status_code == 200:
            accepted.append(answer.json()["id"])
    return accepted, refused(answer)


def test_a_full_data_folder_refuses_new_jobs_and_loses_none(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", OBJECTS_MIB) as disk, running(tmp_path, ECHO, WAITS) as stack:
        job_input = {"go": str(tmp_path / "go"), "runs": str(tmp_path / "runs")}
        job = stack.run("waits", job_input)
        stack.first_chunk("waits", job)
        queued = stack.run("waits", job_input)
        disk.fill()
        accepted, reason = fill_the_store(stack)
        assert "the disk of the data folder is full" in reason
        # The handler ends while nothing can be stored: its outcome is not acknowledged, and the agent, whose
        # session ends with that, cannot be taken in again either.
        (tmp_path / "go").touch()
        record = until_logged(stack, "agent", "is full; try again later; trying again in", "waits", job)
        assert record["status"] == "IN_PROGRESS"
        assert stack.control.poll() is None
        refused(stack.http.post("/echo/run", json={"input": {}}))
        disk.clear()
        assert stack.end_of("waits", job)["output"] == {"attempt": 1}
        assert stack.end_of("waits", queued)["status"] == "COMPLETED"
        assert (tmp_path / "runs").read_text().split()[0] == "1"
        for early in accepted:
            assert stack.end_of("echo", early)["status"] == "COMPLETED"
        assert stack.runsync("echo", {"x": 1})["output"] == {"x": 1}
        jobs = stack.http.get("/waits/health").json()["jobs"]
        assert (jobs["completed"], jobs["inQueue"], jobs["inProgress"]) == (2, 0, 0)
        assert "Traceback" not in stack.log("control")
        assert "an outage of the database begins: nothing was stored" in stack.log("control")


@pytest.mark.slow
def test_a_host_without_room_takes_no_job_until_there_is_some(tmp_path: Path) -> None:
    with small_disk(tmp_path / "agent", 80) as disk, running(tmp_path, ECHO) as stack:
        assert stack.runsync("echo", {"x": 0})["status"] == "COMPLETED"
        disk.fill(leave=(8 << 20) + (1 << 19))  # for what the agent writes meanwhile
        job = first_refused(stack, "8 MiB are free, 64 MiB are needed")
        # It is offered again each second and refused at once; in between it reads IN_PROGRESS for a moment.
        until(lambda: stack.status("echo", job)["status"] == "IN_QUEUE", PATIENCE_S, "a job that waits")
        disk.clear()
        record = stack.end_of("echo", job)
        assert (record["status"], record["output"]) == ("COMPLETED", {"x": 1})
        assert "retries" not in record, "a refusal is not the job's failure"


def test_a_handler_that_fills_the_disk_fails_with_its_own_error(tmp_path: Path) -> None:
    with small_disk(tmp_path / "agent", 80), running(tmp_path, FILLS) as stack:
        record = stack.runsync("fills", {"size": 1 << 30})
        assert record["status"] == "FAILED"
        assert "No space left on device" in str(record["error"])
        # What it wrote is gone with it: the next one has room.
        assert stack.runsync("fills", {"size": 1 << 20})["output"] == "written"


def test_a_full_object_store_holds_results_and_refuses_large_inputs(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data" / "objects", OBJECTS_MIB) as disk, running(tmp_path, FILE) as stack:
        assert stack.runsync("file", {"text": "before"})["status"] == "COMPLETED"
        disk.fill()
        job = stack.run("file", {"text": "kept"})
        record = until_logged(stack, "agent", "could not be uploaded", "file", job)
        assert record["status"] == "IN_PROGRESS"
        large = stack.http.post("/file/runsync", json={"input": {"text": "x" * 2_000_000}})
        assert "is full" in refused(large)
        disk.clear()
        record = stack.end_of("file", job)
        assert record["status"] == "COMPLETED", record
        assert fetched(record["output"]["greeting"]).content == b"kept"
        assert "retries" not in record


@pytest.mark.slow
def test_no_room_at_the_start_is_a_message_and_spoils_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", OBJECTS_MIB) as disk:
        disk.fill()
        stack = Stack(tmp_path, ECHO)
        with pytest.raises(AssertionError, match="No space left on device"):
            stack.start_control()
        assert "Traceback" not in stack.log("control")
        disk.clear()
        # Half a key or half a database would need somebody's hand now.
        with running(tmp_path, ECHO) as stack:
            assert stack.runsync("echo", {"x": 1})["output"] == {"x": 1}


@pytest.mark.slow
def test_control_starts_on_a_disk_that_has_no_room_for_objects(tmp_path: Path) -> None:
    """Restarted with little room, it goes on with what needs none; uploads wait."""
    with small_disk(tmp_path / "data", OBJECTS_MIB) as disk:
        disk.fill(leave=40 << 20)
        with running(tmp_path, ECHO) as stack:
            assert "40 MiB are free" in stack.log("control") or "39 MiB are free" in stack.log("control")
            assert stack.runsync("echo", {"x": 1})["output"] == {"x": 1}
            refused(stack.http.post("/echo/runsync", json={"input": {"text": "x" * 2_000_000}}))
