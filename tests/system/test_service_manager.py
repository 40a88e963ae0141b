"""Control, a standby, an agent and the page below a service manager: what each tells it, and that no worker
could speak for its agent."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kept_port import kept_port
from tests.system.stack import SOURCE, START_S, Stack, queue_endpoint, until

pytestmark = pytest.mark.slow
ENDPOINT = queue_endpoint("echo", "outputs/echo.py")


class Manager:
    """The socket of a service manager, and what it is told."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(START_S)
        self.variables = {"NOTIFY_SOCKET": address}

    def told(self) -> dict[str, str]:
        lines = self._socket.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    path = str(tmp_path / "notify")
    made = Manager(f"@{path}" if request.param == "abstract" else path)
    yield made
    made.close()


def is_told_of_all(manager: Manager, process: object) -> None:
    """From ready on: a hangup, and the end."""
    process.send_signal(signal.SIGHUP)  # type: ignore[attr-defined]
    began = manager.told()
    assert began["RELOADING"] == "1"
    assert int(began["MONOTONIC_USEC"]) > 0
    assert manager.told() == {"READY": "1"}
    process.send_signal(signal.SIGTERM)  # type: ignore[attr-defined]
    assert manager.told()["STOPPING"] == "1"


def test_control_and_an_agent(tmp_path: Path, manager: Manager) -> None:
    stack = Stack(tmp_path, ENDPOINT)
    silent = Manager(str(tmp_path / "of-control"))
    try:
        variables = stack._control_variables() | silent.variables
        stack.control, stack.facts = stack._start(stack._control_command(), "control", variables)
        assert silent.told() == {"READY": "1", "STATUS": "serves"}
        stack._call_control()
        command = ["agent", "--control", stack.facts["grpc"], "--data-dir", str(tmp_path / "agent")]
        stack.agent, _ = stack._start(command, "agent", manager.variables)
        assert manager.told() == {"READY": "1", "STATUS": "serves"}
        assert stack.runsync("echo", {"n": 1})["output"] == {"n": 1}
        workers = psutil.Process(stack.agent.pid).children(recursive=True)
        assert workers
        assert not [one for one in workers if "NOTIFY_SOCKET" in one.environ()]
        is_told_of_all(manager, stack.agent)
        is_told_of_all(silent, stack.control)
    finally:
        stack.stop()
        silent.close()


def test_a_standby_has_started_when_it_waits(tmp_path: Path, manager: Manager) -> None:
    stack = Stack(tmp_path)
    try:
        stack.start_control()
        stack.database = manager.variables  # a variable of the next control
        stack.start_standby()
        assert manager.told() == {"READY": "1", "STATUS": "waits for the control before it"}
        stack.standby.send_signal(signal.SIGHUP)
        assert manager.told()["RELOADING"] == "1"
        assert manager.told() == {"READY": "1"}
        stack.end_control()
        stack.standby_leads()
        assert manager.told() == {"READY": "1", "STATUS": "serves"}
        is_told_of_all(manager, stack.control)
    finally:
        stack.stop()


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is not here")
def test_control_takes_the_listener_of_a_socket_unit(tmp_path: Path) -> None:
    """A call that comes before control is there waits, and is answered."""
    stack = Stack(tmp_path)
    with kept_port() as held:
        port = held.getsockname()[1]
    command = [sys.executable, "-P", "-m", "stoker.cli", "control", "--grpc-port", "0"]
    variables = {"STOKER_API_KEY": stack.key, "PYTHONPATH": str(SOURCE), "STOKER_JOIN_TOKEN": stack.join}
    passed = [option for name in variables for option in ("-E", name)]
    activate = ["systemd-socket-activate", "-l", f"127.0.0.1:{port}", *passed, *command]
    with (tmp_path / "control.log").open("wb") as log:
        stack.control = subprocess.Popen(
            [*activate, "--data-dir", str(tmp_path / "data")],
            env={**os.environ, **variables},
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: "Listening on" in stack.log("control"), START_S, "a listener")
        stack.facts = {"http": f"http://127.0.0.1:{port}"}
        stack._call_control()
        assert stack.http.get(f"{stack.facts['http']}/v1/endpoints").json() == []
    finally:
        stack.stop()


def test_the_page(tmp_path: Path, manager: Manager) -> None:
    stack = Stack(tmp_path)
    try:
        command = ["page", "--url", "http://127.0.0.1:9", "--port", "0"]
        page, _ = stack._start(command, "page", manager.variables)
        assert manager.told() == {"READY": "1", "STATUS": "serves"}
        is_told_of_all(manager, page)
    finally:
        stack._ended("page")
