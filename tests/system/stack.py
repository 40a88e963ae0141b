"""Control and agent as real processes, with an operator's options; killed, started again, and looked after.

Ports are free ones and are kept over a restart, as `stoker up` does. At the end nothing may be left running:
no worker, no object store, nothing that has the data folder on its command line.

Nothing here is held to a time: what is waited for comes, or a patience ends that no slow machine uses up.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import psutil

from tests.system.preloaded import Preloaded, executed, preloaded

Process = subprocess.Popen[bytes] | Preloaded
HANDLERS = Path(__file__).parents[1] / "handlers"
PROGRAMS = HANDLERS.with_name("handlers_protocol")
SERVERS = HANDLERS.with_name("handlers_http")
SOURCE = Path(__file__).parents[2] / "src"


LIVING: list[Stack] = []
"""What runs now; a test that fails shows their logs."""

STOP_S = 60.0
"""An agent gives what runs 30 s to end by itself, and then its ladder."""

GONE_S = 30.0
"""What was killed is gone when the kernel next runs it."""

START_S = 120.0
"""For a first sign of a handler: its worker may have a model to load."""

FETCH_S = 60.0
MAX_LOG_CHARACTERS = 6000
"""Characters of a log beside a failure."""


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


def until(
    done: Callable[[], bool],
    patience_s: float,
    what: str,
    found: Callable[[], object] | None = None,
    pause_s: float = 0.05,
) -> None:
    """`found` tells, for the reader of a failure, what there is instead. The last look comes after the end of
    the patience: who was not run meanwhile has not looked yet."""
    pause, deadline = threading.Event(), time.monotonic() + patience_s
    late = False
    while not done():
        detail = f"; there is {found()}" if late and found else ""
        assert not late, f"in {patience_s:.0f} s there was never: {what}{detail}"
        pause.wait(pause_s)
        late = time.monotonic() >= deadline


def fetched(url: str) -> httpx2.Response:
    """What anybody gets at a signed URL."""
    return httpx2.get(url, trust_env=False, timeout=FETCH_S)


TINY = "flux-tiny,talk-tiny"
"""A host with a GPU takes these only where they are asked for."""


class Stack:
    """`database` is the URL of a PostgreSQL one; without it control keeps a file."""

    def __init__(
        self, folder: Path, *endpoints: str, hosted: tuple[str, ...] = (), database: str | None = None
    ) -> None:
        self.folder = folder
        self.database = {} if database is None else {"STOKER_DATABASE_URL": database}
        self.hosted = hosted
        self.pipelines = TINY
        self.config = folder / "stoker.toml"
        roots = json.dumps([str(HANDLERS), str(PROGRAMS), str(SERVERS)])
        self.config.write_text(f"local_roots = {roots}\n" + "\n".join(endpoints))
        self.key = f"sk_{secrets.token_hex(6)}_{secrets.token_hex(24)}"
        self.join = f"jt_{secrets.token_hex(6)}_{secrets.token_hex(24)}"
        self.facts: dict[str, str] = {}
        self.agent_options: list[str] = []
        self.python = sys.executable
        self.more_controls: list[str] = []
        """Addresses that the agent tries, too."""
        self.listener: socket.socket | None = None
        """Control's, where it is handed over, as a service manager does; needs `executed`."""
        self.executed = executed()
        """For tests of what the kernel shows of control and the agent, too."""
        self.control: Process
        self.standby: Process
        self.agent: Process
        self.http: httpx2.Client
        self._ports: list[socket.socket] = []

    # -- processes

    def start(self) -> None:
        if self not in LIVING:
            LIVING.append(self)
        self.start_control()
        self.start_agent()

    def start_control(self) -> None:
        self.control, self.facts = self._start(self._control_command(), "control", self._control_variables())
        self._let_ports_go()
        self._call_control()

    def start_standby(self, *options: str, says: str = "waiting for it to end") -> None:
        """Starts a second control on the same store and ports; returns when it says that it waits."""
        command = [*self._control_command(), "--standby", *options]
        self._standby_ready = self._spawn(command, "standby", self._control_variables())
        until(lambda: says in self.log("standby"), START_S, "a standby that waits")

    def standby_leads(self) -> None:
        """Returns when the standby serves, in place of control, which has ended."""
        self.facts = self._ready(self.standby, self._standby_ready, "standby")
        self.control = self.standby
        del self.standby
        self._let_ports_go()
        self._call_control()

    def _control_command(self) -> list[str]:
        port, grpc = (self.facts.get(name, ":0").rpartition(":")[2] for name in ("http", "grpc"))
        command = ["control", "--port", port, "--grpc-port", grpc, "--data-dir", str(self.folder / "data")]
        command += ["--config", str(self.config)]
        if self.listener is not None:
            command += ["--http-fd", str(self.listener.fileno())]
        for hosted in self.hosted:
            command += ["--hosted", hosted]
        return command

    def _control_variables(self) -> dict[str, str]:
        return {"STOKER_API_KEY": self.key, "STOKER_PIPELINE": self.pipelines, **self.database}

    def _call_control(self) -> None:
        if hasattr(self, "http"):
            self.http.close()
        headers = {"Authorization": f"Bearer {self.key}"}
        url = f"{self.facts['http']}/v2"
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=120, trust_env=False)

    def start_agent(self) -> None:
        controls = ",".join([self.facts["grpc"], *self.more_controls])
        command = ["agent", "--control", controls, "--data-dir", str(self.folder / "agent")]
        self.agent, _ = self._start([*command, *self.agent_options], "agent", {})

    @contextlib.contextmanager
    def another_agent(self, name: str, **variables: str) -> Iterator[None]:
        """A further host for the block."""
        command = ["agent", "--control", self.facts["grpc"], "--data-dir", str(self.folder / name)]
        process, _ = self._start([*command, "--name", name], name, variables)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_S)

    def _start(self, command: list[str], name: str, env: dict[str, str]) -> tuple[Process, dict[str, str]]:
        read = self._spawn(command, name, env)
        process: Process = getattr(self, name)
        return process, self._ready(process, read, name)

    def _spawn(self, command: list[str], name: str, env: dict[str, str]) -> int:
        """Returns the descriptor of which `_ready` reads."""
        read, write = os.pipe()
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "STOKER_JOIN_TOKEN": self.join, **env}
        with open(self.folder / f"{name}.log", "ab") as log:
            process: Process
            if self.executed:
                process = subprocess.Popen(
                    [self.python, "-P", "-m", "stoker.cli", *command, "--ready-fd", str(write)],
                    env=environment,
                    cwd=self.folder,
                    pass_fds=[write, *([] if self.listener is None else [self.listener.fileno()])],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            else:
                command += ["--ready-fd", "3"]
                process = preloaded(SOURCE).start(command, environment, self.folder, log.fileno(), write)
        setattr(self, name, process)  # at once: whatever happens, `stop` knows of it
        os.close(write)
        return read

    def _ready(self, process: Process, read: int, name: str) -> dict[str, str]:
        with open(read, "rb") as ready:
            line = ready.readline()
            while "waits" in json.loads(line or "{}"):
                line = ready.readline()
        if not line:
            process.wait()
            raise AssertionError(f"{name} ended before it was ready:\n{self.end_of_log(name)}")
        return dict(json.loads(line))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def end_of_log(self, name: str) -> str:
        return self.log(name)[-MAX_LOG_CHARACTERS:]

    def logged(self) -> list[str]:
        return [name for name in ("control", "standby", "agent") if (self.folder / f"{name}.log").exists()]

    def kill(self, name: str) -> None:
        """SIGKILL to control or the agent alone."""
        process: Process = getattr(self, name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if name == "control":
            self._hold_ports()

    def end_control(self) -> None:
        """SIGTERM to control, and its end."""
        self.control.send_signal(signal.SIGTERM)
        self.control.wait()
        self._hold_ports()

    def _hold_ports(self) -> None:
        """Bound, and not listened on: until control is back, the system gives its ports to nobody else."""
        for name in ("http", "grpc") if self.listener is None else ("grpc",):
            port = socket.socket()
            self._ports.append(port)
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port.bind(("127.0.0.1", int(self.facts[name].rpartition(":")[2])))

    def _let_ports_go(self) -> None:
        while self._ports:
            self._ports.pop().close()

    def stop(self) -> None:
        if self in LIVING:
            LIVING.remove(self)
        hung = [name for name in ("agent", "standby", "control") if not self._ended(name)]
        self._let_ports_go()
        if hasattr(self, "http"):
            self.http.close()
        assert not hung, "\n".join(f"{name} did not stop:\n{self.end_of_log(name)}" for name in hung)
        until(lambda: not self.left_over(), GONE_S, "an end of all that was started", self.left_over)

    def _ended(self, name: str) -> bool:
        """By SIGTERM; what does not listen to it is killed, and nothing of the test stays either way."""
        process: Process | None = getattr(self, name, None)
        if process is None or process.poll() is not None:
            return True
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        return True

    def left_over(self) -> list[str]:
        """Living processes that name this stack's folder, on their command line or in a worker's mark."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # somebody's folder may be too deep to be told
                line = " ".join(
                    [*process.cmdline(), process.cwd(), process.environ().get("STOKER_AGENT", "")]
                )
                if str(self.folder) in line and process.pid != os.getpid():
                    found.append(line)
        return found

    # -- calls

    def run(self, endpoint: str, job_input: dict[str, Any], **more: Any) -> str:
        answer = self.http.post(f"/{endpoint}/run", json={"input": job_input, **more})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def runsync(self, endpoint: str, job_input: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer = self.http.post(f"/{endpoint}/runsync?wait=120000", json={"input": job_input, **more})
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

    def status(self, endpoint: str, job: str) -> dict[str, Any]:
        """As it is now: a look at one moment, which another may follow."""
        answer = self.http.get(f"/{endpoint}/status/{job}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def health(self, endpoint: str) -> dict[str, Any]:
        """What control knows of any endpoint, also of one whose paths are all its workers'."""
        return dict(self.http.get(f"{self.facts['http']}/v1/endpoints/{endpoint}/health").json())

    def in_progress(self, endpoint: str, job: str) -> None:
        """Waits until the handler has reported progress."""
        until(lambda: "output" in self.status(endpoint, job), START_S, "progress")


@contextlib.contextmanager
def running(
    folder: Path,
    *endpoints: str,
    hosted: tuple[str, ...] = (),
    database: str | None = None,
    options: Sequence[str] = (),
    executed: bool = False,
    pipelines: str = TINY,
) -> Iterator[Stack]:
    """`options` are its agent's."""
    stack = Stack(folder, *endpoints, hosted=hosted, database=database)
    stack.pipelines = pipelines
    stack.executed = stack.executed or executed
    stack.agent_options += options
    try:
        stack.start()
        yield stack
    except BaseException:
        for name in ("control", "standby", "agent"):
            with contextlib.suppress(OSError):
                print(f"--- {name}.log\n{stack.end_of_log(name)}")
        raise
    finally:
        stack.stop()
