"""A backup taken while control serves, and control restored from it in place of one whose disk is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.system.stack import SOURCE, Stack, queue_endpoint, running, until

WAITS = queue_endpoint("waits", "recording/first_attempt_waits.py")
SHORT = queue_endpoint("short", "recording/first_attempt_waits.py", workersMin=2, workersMax=2)
PATIENCE_S = 120.0


class Load:
    """Callers that have jobs done, one after another, for the length of the block; `answered` has the ids."""

    def __init__(self, stack: Stack) -> None:
        self.answered: list[str] = []
        self._stack, self._over = stack, threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(4)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        headers = {"Authorization": f"Bearer {self._stack.key}"}
        job = {"input": {"go": "/", "runs": str(self._stack.folder / "runs")}, "policy": {"ttl": 86_400_000}}
        with httpx2.Client(base_url=f"{self._stack.facts['http']}/v2", headers=headers, timeout=120) as http:
            while not self._over.is_set():
                answer = http.post("/short/run", json=job)
                done = http.get(f"/short/status-sync/{answer.json()['id']}?wait=120000").json()
                assert done["status"] == "COMPLETED", done
                self.answered.append(done["id"])

    def more(self, number: int) -> None:
        wanted = len(self.answered) + number
        until(lambda: len(self.answered) >= wanted, PATIENCE_S, "more jobs", lambda: len(self.answered))


def stoker(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    data = ["--data-dir", str(stack.folder / "data")]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **stack.database}
    return subprocess.run(
        [sys.executable, "-P", "-m", "stoker.cli", *arguments, *data],
        env=env,
        cwd=stack.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def late_agent(stack: Stack) -> Iterator[None]:
    """A second host, for the length of the block."""
    command = [
        "agent",
        "--control",
        stack.facts["grpc"],
        "--data-dir",
        str(stack.folder / "late"),
        "--name",
        "late",
    ]
    process, _ = stack._start([*command, "--name", "late"], "late", {})
    try:
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_backup_under_load_has_every_job_that_was_answered(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    """The host of control is lost, and its database; its agents live. A job that ran then ends; the node that
    had joined comes back by itself; the one that joined later is refused with a sentence, and joins again."""
    server = request.getfixturevalue("postgres") if database == "postgres" else None
    url = None if server is None else server.fresh()
    with running(tmp_path, WAITS, SHORT, database=url) as stack:
        held = stack.run("waits", {"go": str(tmp_path / "go"), "runs": str(tmp_path / "held")})
        stack.first_chunk("waits", held)
        with Load(stack) as load:
            load.more(20)
            before = list(load.answered)
            made = stoker(stack, "backup", "stoker.backup", "--with-keys")
            load.more(8)
        assert made.returncode == 0, made.stderr
        with late_agent(stack):
            until(lambda: "connected; devices" in stack.log("late"), PATIENCE_S, "a second node")
        after = stack.run("waits", {"go": "/", "runs": str(tmp_path / "runs")})

        stack.kill("control")
        (tmp_path / "data").rename(tmp_path / "lost")
        if server is not None:
            stack.database["STOKER_DATABASE_URL"] = server.fresh()
        restored = stoker(stack, "restore", "stoker.backup")
        assert restored.returncode == 0, restored.stderr
        stack.start_control()

        (tmp_path / "go").touch()
        assert stack.end_of("waits", held)["output"] == {"attempt": 1}
        assert (tmp_path / "held").read_text() == "1\n", "it ran once"
        for job in before:
            assert stack.status("short", job)["status"] == "COMPLETED"
        assert stack.http.get(f"/waits/status/{after}").status_code == 404
        assert stack.runsync("short", {"go": "/", "runs": str(tmp_path / "runs")})["status"] == "COMPLETED"

        with pytest.raises(AssertionError, match="ended before it was ready"), late_agent(stack):
            pass
        assert "restored from a backup of before it joined" in stack.log("late")
        (tmp_path / "late" / "node_credential").unlink()
        with late_agent(stack):
            until(lambda: stack.log("late").count("this node joined") == 2, PATIENCE_S, "it joins again")
