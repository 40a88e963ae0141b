"""Files that are deleted under a running platform: each is a sentence, and every job ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.system.stack import fetched, queue_endpoint, running

ECHO = queue_endpoint("echo", "outputs/echo.py")
FILE = queue_endpoint("file", "files/file_ok.py")
WAITS = queue_endpoint("waits", "recording/first_attempt_waits.py")
LARGE = "x" * 2_000_000
"""An input of this size lies in the object store, as does an output."""


@pytest.mark.parametrize("what", ["objects", "objects/stoker"])
@pytest.mark.slow
def test_jobs_go_on_without_the_folder_of_the_object_store(tmp_path: Path, what: str) -> None:
    with running(tmp_path, WAITS, ECHO, FILE) as stack:
        job_input = {"go": str(tmp_path / "go"), "runs": str(tmp_path / "runs")}
        holds = stack.run("waits", job_input)
        stack.first_chunk("waits", holds)
        queued = stack.run("waits", {**job_input, "text": LARGE})
        shutil.rmtree(tmp_path / "data" / what)
        stack.runsync("file", {"text": "while it is away"})  # it ends, whichever way
        (tmp_path / "go").touch()
        assert stack.end_of("waits", holds)["status"] == "COMPLETED"
        lost = stack.end_of("waits", queued)
        assert lost["status"] == "FAILED"
        assert "input" in lost["error"]
        made = stack.runsync("file", {"text": "again"})
        assert fetched(made["output"]["greeting"]).text == "again"
        assert stack.runsync("echo", {"x": LARGE})["status"] == "COMPLETED"
        assert "was deleted or replaced" in stack.log("control")
        assert "Traceback" not in stack.log("control") + stack.log("agent")


@pytest.mark.slow
def test_control_ends_without_its_database_and_a_new_one_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, WAITS, ECHO) as stack:
        job_input = {"go": str(tmp_path / "go"), "runs": str(tmp_path / "runs")}
        job = stack.run("waits", job_input)
        stack.first_chunk("waits", job)
        (tmp_path / "data/stoker.db").unlink()
        assert stack.control.wait(60) == 1
        assert "stoker.db was deleted while control was running; control ends" in stack.log("control")
        assert "Traceback" not in stack.log("control")
        stack.start_control()
        assert stack.http.get(f"/waits/status/{job}").status_code == 404
        stack.kill("agent")
        shutil.rmtree(tmp_path / "agent")  # its credential is of the database that is gone
        stack.start_agent()
        assert stack.runsync("echo", {"x": 1})["status"] == "COMPLETED"
