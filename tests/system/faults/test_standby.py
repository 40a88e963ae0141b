"""A control and its standby, as real processes: the first is killed under load, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stoker.client import Client
from tests.kept_port import kept_port
from tests.system.stack import SOURCE, START_S, Stack, queue_endpoint, running, until

ENDPOINT = queue_endpoint("echo", "outputs/echo.py")
AROUND = 20
"""Jobs that are accepted before the kill, and after it."""


class Callers:
    """Submissions one after the other, on new connections, until `close`. What was not answered with a 200 is
    refused; a caller whose connection breaks does not know whether its job was stored."""

    def __init__(self, stack: Stack) -> None:
        self.accepted: list[str] = []
        self.refused: list[float] = []
        self._url, self._key = f"{stack.facts['http']}/v2/echo/run", stack.key
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        headers = {"Authorization": f"Bearer {self._key}"}
        while not self._closed.is_set():
            body = {"input": {"n": len(self.accepted)}}
            try:
                answer = httpx2.post(self._url, json=body, headers=headers, trust_env=False, timeout=60)
            except httpx2.TransportError:
                answer = None
            if answer is not None and answer.status_code == 200:
                self.accepted.append(answer.json()["id"])
            else:
                self.refused.append(time.monotonic())
                self._closed.wait(0.01)


def has_accepted(callers: Callers, count: int) -> None:
    until(lambda: len(callers.accepted) >= count, START_S, f"{count} accepted jobs")


@pytest.mark.slow
@pytest.mark.parametrize("url", [None, "postgres"], indirect=True)
def test_a_standby_takes_over_from_a_killed_control_and_loses_nothing(
    tmp_path: Path, url: str | None
) -> None:
    with running(tmp_path, ENDPOINT, database=url) as stack:
        stack.start_standby()
        callers = Callers(stack)
        try:
            has_accepted(callers, AROUND)
            stack.kill("control")
            stack.standby_leads()
            has_accepted(callers, len(callers.accepted) + AROUND)
        finally:
            callers.close()
        for number, job in enumerate(callers.accepted):
            record = stack.end_of("echo", job)
            assert (record["status"], record["output"]) == ("COMPLETED", {"n": number})
        done = stack.health("echo")["jobs"]
        assert done["inQueue"] == done["inProgress"] == done["failed"] == 0
        log = stack.log("standby")
        assert log.count("another control is running on") == log.count("this standby takes over") == 1


@pytest.mark.slow
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_control_that_stands_still_is_replaced_and_ends_when_it_goes_on(tmp_path: Path, url: str) -> None:
    """The standby has a data folder of its own, as on another host; agents and callers find it."""
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    stack = Stack(tmp_path, ENDPOINT, database=url)
    with kept_port() as http, kept_port() as grpc:
        try:
            stack.start_control()
            ports = [str(held.getsockname()[1]) for held in (http, grpc)]
            shutil.copy(tmp_path / "data" / "secret.key", other)
            stack.start_standby("--port", ports[0], "--grpc-port", ports[1], "--data-dir", str(other))
            stack.more_controls = [f"127.0.0.1:{ports[1]}"]
            stack.start_agent()
            done = [stack.runsync("echo", {"n": n})["id"] for n in range(AROUND)]
            stopped = stack.control
            stopped.send_signal(signal.SIGSTOP)
            stack.standby_leads()
            assert "has stood still for 10 s; taking over" in stack.log("standby")
            assert stack.runsync("echo", {"n": -1})["output"] == {"n": -1}
            stopped.send_signal(signal.SIGCONT)
            assert stopped.wait(60) == 1
            assert "another control has taken over the database" in stack.log("control")
            for n, job in enumerate(done):
                assert stack.status("echo", job)["output"] == {"n": n}
            assert stack.runsync("echo", {"n": -2})["output"] == {"n": -2}
            assert stack.health("echo")["jobs"]["completed"] == AROUND + 2
        finally:
            stack.stop()


@pytest.mark.slow
def test_agent_and_clients_follow_to_a_standby_at_another_address(tmp_path: Path) -> None:
    stack = Stack(tmp_path, ENDPOINT)
    with kept_port() as http, kept_port() as grpc:
        try:
            stack.start_control()
            ports = [str(held.getsockname()[1]) for held in (http, grpc)]
            stack.start_standby("--port", ports[0], "--grpc-port", ports[1])
            stack.more_controls = [f"127.0.0.1:{ports[1]}"]
            stack.start_agent()
            assert stack.runsync("echo", {"n": 1})["output"] == {"n": 1}
            addresses = f"{stack.facts['http']},http://127.0.0.1:{ports[0]}"
            with Client(addresses, stack.key) as client:
                before = client.runsync("echo", {"n": 2})
                stack.kill("control")
                stack.standby_leads()
                assert client.status("echo", before.id).output == {"n": 2}
                assert client.runsync("echo", {"n": 3}).output == {"n": 3}
            listed = subprocess.run(
                [sys.executable, "-P", "-m", "stoker.cli", "job", "list", "echo", "--url", addresses],
                env={**os.environ, "PYTHONPATH": str(SOURCE), "STOKER_API_KEY": stack.key},
                capture_output=True,
                text=True,
                check=True,
            )
            assert before.id in listed.stdout
            assert stack.facts["grpc"] == stack.more_controls[0]
            assert "trying the next address of control" in stack.log("agent")
        finally:
            stack.stop()


@pytest.mark.slow
def test_a_standby_that_is_started_in_an_outage_of_its_database_waits_for_it(
    tmp_path: Path, postgres: Any
) -> None:
    stack = Stack(tmp_path, ENDPOINT, database=postgres.fresh())
    try:
        stack.start_control()
        stack.end_control()
        postgres.kill()
        try:
            stack.start_standby(says="; waiting for it")
            stack.standby.send_signal(signal.SIGTERM)
            assert stack.standby.wait(60) == 0, "it can be stopped meanwhile"
            stack.start_standby(says="; waiting for it")
            until(lambda: stack.log("standby").count("; waiting for it") == 2, START_S, "its own line")
        finally:
            postgres.start()
        stack.standby_leads()
        stack.start_agent()
        assert stack.runsync("echo", {"n": 1})["output"] == {"n": 1}
        log = stack.log("standby")
        assert (log.count("; waiting for it"), log.count("the database answers")) == (2, 1)
    finally:
        stack.stop()
