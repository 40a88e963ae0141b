"""Control and agent as real processes, as an operator starts them; killed, started again, and looked after.

Ports are free ones and are kept over a restart, as `stoker up` does. At the end nothing may be left running:
no worker, no object store, nothing that has the data folder on its command line.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

HANDLERS = Path(__file__).parents[1] / "handlers"
PROGRAMS = HANDLERS.with_name("handlers_protocol")
SOURCE = Path(__file__).parents[2] / "src"


LIVING: list[Stack] = []
"""What runs now; a test that fails shows their logs."""


def queue_endpoint(name: str, file: str, **fields: Any) -> str:
    """One `[[endpoints]]` section for a handler of tests/handlers, with one worker kept."""
    values = {
        "id": name,
        "name": name,
        "type": "QUEUE",
        "imageName": f"local:{HANDLERS / file}:handler",
        "workersMin": 1,
        "workersMax": 1,
        **fields,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(["[[endpoints]]", *lines, ""])


def files_below(folder: Path) -> list[Path]:
    """Where processes live: what they remove meanwhile is left out."""
    found = [Path(here, name) for here, _, names in os.walk(folder) for name in names]
    return [path for path in found if path.is_file()]


def until(done: Callable[[], bool], patience_s: float, what: str) -> None:
    pause, deadline = threading.Event(), time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < deadline, f"in {patience_s:.0f} s there was never: {what}"
        pause.wait(0.05)


class Stack:
    """`database` is the URL of a PostgreSQL one; without it control keeps a file."""

    def __init__(
        self, folder: Path, *endpoints: str, hosted: tuple[str, ...] = (), database: str | None = None
    ) -> None:
        self.folder = folder
        self.database = {} if database is None else {"STOKER_DATABASE_URL": database}
        self.hosted = hosted
        self.config = folder / "stoker.toml"
        roots = json.dumps([str(HANDLERS), str(PROGRAMS)])
        self.config.write_text(f"local_roots = {roots}\n" + "\n".join(endpoints))
        self.key = f"sk_{secrets.token_hex(6)}_{secrets.token_hex(24)}"
        self.join = f"jt_{secrets.token_hex(6)}_{secrets.token_hex(24)}"
        self.facts: dict[str, str] = {}
        self.agent_options: list[str] = []
        self.control: subprocess.Popen[bytes]
        self.agent: subprocess.Popen[bytes]
        self.http: httpx.Client

    # -- processes

    def start(self) -> None:
        LIVING.append(self)
        self.start_control()
        self.start_agent()

    def start_control(self) -> None:
        port, grpc = (self.facts.get(name, ":0").rpartition(":")[2] for name in ("http", "grpc"))
        command = ["control", "--port", port, "--grpc-port", grpc, "--data-dir", str(self.folder / "data")]
        command += ["--config", str(self.config)]
        for hosted in self.hosted:
            command += ["--hosted", hosted]
        self.control, self.facts = self._start(
            command, "control", {"STOKER_API_KEY": self.key, **self.database}
        )
        if hasattr(self, "http"):
            self.http.close()
        headers = {"Authorization": f"Bearer {self.key}"}
        url = f"{self.facts['http']}/v2"
        self.http = httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False)

    def start_agent(self) -> None:
        command = ["agent", "--control", self.facts["grpc"], "--data-dir", str(self.folder / "agent")]
        self.agent, _ = self._start([*command, *self.agent_options], "agent", {})

    def _start(
        self, command: list[str], name: str, env: dict[str, str]
    ) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
        read, write = os.pipe()
        given = {**os.environ, "PYTHONPATH": str(SOURCE), "STOKER_JOIN_TOKEN": self.join, **env}
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "stoker.cli", *command, "--ready-fd", str(write)],
                env=given,
                cwd=self.folder,
                pass_fds=[write],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        setattr(self, name, process)  # at once: whatever happens, `stop` knows of it
        os.close(write)
        with open(read, "rb") as ready:
            line = ready.readline()
        if not line:
            process.wait()
            raise AssertionError(f"{name} ended before it was ready:\n{self.log(name)}")
        return process, json.loads(line)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-6000:]

    def logged(self) -> list[str]:
        return [name for name in ("control", "agent") if (self.folder / f"{name}.log").exists()]

    def kill(self, name: str) -> None:
        """SIGKILL to control or the agent alone."""
        process: subprocess.Popen[bytes] = getattr(self, name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        if self in LIVING:
            LIVING.remove(self)
        for name in ("agent", "control"):
            process = getattr(self, name, None)
            if process is None or process.poll() is not None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"{name} did not stop:\n{self.log(name)}") from None
        if hasattr(self, "http"):
            self.http.close()
        assert not self.left_over(), "something was left running"

    def left_over(self) -> list[str]:
        """Living processes that name this stack's folder, on their command line or in a worker's mark."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = " ".join(
                    [*process.cmdline(), process.cwd(), process.environ().get("STOKER_AGENT", "")]
                )
                if str(self.folder) in line and process.pid != os.getpid():
                    found.append(line)
        return found

    # -- calls

    def run(self, endpoint: str, given: dict[str, Any], **more: Any) -> str:
        answer = self.http.post(f"/{endpoint}/run", json={"input": given, **more})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def runsync(self, endpoint: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer = self.http.post(f"/{endpoint}/runsync?wait=120000", json={"input": given, **more})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def end_of(self, endpoint: str, job: str) -> dict[str, Any]:
        answer = self.http.get(f"/{endpoint}/status-sync/{job}?wait=120000")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def first_chunk(self, endpoint: str, job: str) -> Any:
        """Waits until the handler has emitted something: it runs."""
        while True:
            answer = self.http.get(f"/{endpoint}/stream/{job}?wait=60000").json()
            if answer["stream"]:
                return answer["stream"][0]["output"]
            assert answer["status"] in {"IN_QUEUE", "IN_PROGRESS"}, answer

    def in_progress(self, endpoint: str, job: str) -> None:
        """Waits until the handler has reported progress."""
        while "output" not in self.http.get(f"/{endpoint}/status/{job}").json():
            pass


@contextlib.contextmanager
def running(
    folder: Path, *endpoints: str, hosted: tuple[str, ...] = (), database: str | None = None
) -> Iterator[Stack]:
    stack = Stack(folder, *endpoints, hosted=hosted, database=database)
    try:
        stack.start()
        yield stack
    except BaseException:
        for name in ("control", "agent"):
            with contextlib.suppress(OSError):
                print(f"--- {name}.log\n{stack.log(name)}")
        raise
    finally:
        stack.stop()
