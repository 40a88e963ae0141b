"""Every part is restarted under load, one by one: nothing is lost, nothing runs twice, all exit 0."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from tests.system.stack import LIVING, STOP_S, Stack, queue_endpoint, until
from tests.system.workers.test_protocol_workers import STOCK, program

AGENTS = ("agent", "other")
GRACE_S = "20"


class TwoAgents(Stack):
    """`agent` and `other`, each with a data folder of its own."""

    other: subprocess.Popen[bytes]

    def start(self) -> None:
        LIVING.append(self)
        self.start_control()
        for name in AGENTS:
            self.start_named(name)

    def start_named(self, name: str) -> None:
        command = ["agent", "--control", self.facts["grpc"], "--data-dir", str(self.folder / name)]
        self._start([*command, "--name", name], name, {"STOKER_GRACE_S": GRACE_S})

    def logged(self) -> list[str]:
        return [*super().logged(), "other"]

    def ends(self, name: str) -> float:
        """SIGTERM; the exit status is 0. How long it took."""
        process: subprocess.Popen[bytes] = getattr(self, name)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0, self.log(name)
        seconds = time.monotonic() - begun
        if name == "control":
            self._hold_ports()
        return seconds

    def stop(self) -> None:
        if hasattr(self, "other") and self.other.poll() is None:
            self.ends("other")
        super().stop()


class Load(threading.Thread):
    """A job every `pause` seconds, until stopped. One that was not taken is submitted again under its key."""

    def __init__(self, stack: Stack, endpoints: list[str], pause: float) -> None:
        super().__init__()
        self.stack, self.endpoints, self.pause = stack, endpoints, pause
        self.accepted: list[tuple[str, str]] = []
        self.refused = Counter[str]()
        self.over = threading.Event()
        self._rng = Random(5)

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {self.stack.key}"}
        url = f"{self.stack.facts['http']}/v2"
        with httpx2.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
            number = 0
            while not self.over.wait(self.pause):
                number += 1
                # A program of the stock SDK ends one job a second.
                endpoint = self.endpoints[-1 if number % 20 == 0 else 0]
                self.accepted.append((endpoint, self._submit(http, endpoint, number)))

    def takes(self, count: int) -> None:
        """Waits until that many more jobs were accepted: how fast they are is the machine's affair."""
        wanted = len(self.accepted) + count
        until(lambda: len(self.accepted) >= wanted or not self.is_alive(), 60, f"{count} more jobs")

    def _submit(self, http: httpx2.Client, endpoint: str, number: int) -> str:
        job_input = {"ms": self._rng.randint(50, 200), "runs": str(self.stack.folder / "runs")}
        while True:
            try:
                headers = {"Idempotency-Key": f"load-{number}"}
                answer = http.post(f"/{endpoint}/run", json={"input": job_input}, headers=headers)
            except httpx2.TransportError as error:
                self.refused[type(error).__name__] += 1
            else:
                if answer.status_code == 200:
                    return str(answer.json()["id"])
                assert answer.status_code == 503, answer.text
                assert answer.headers["Retry-After"]
                self.refused["503"] += 1
            self.over.wait(0.05)


def workers_ready(stack: Stack, endpoint: str, count: int) -> None:
    """At most a minute: on a busy machine an interpreter takes seconds to start."""

    def ready() -> bool:
        return int(stack.http.get(f"/{endpoint}/health").json()["workers"]["ready"]) >= count

    until(ready, 60, f"{count} workers of {endpoint}")


@pytest.mark.slow
def test_a_rolling_restart_under_load_loses_nothing_and_runs_nothing_twice(tmp_path: Path) -> None:
    endpoints = {"python": queue_endpoint("python", "recording/notes_its_run.py", workersMin=2, workersMax=2)}
    if STOCK.exists():
        endpoints["stock"] = program("stock", "notes_its_run")
    stack = TwoAgents(tmp_path, *endpoints.values())
    load = Load(stack, list(endpoints), pause=0.1)
    try:
        stack.start()
        workers_ready(stack, "python", 2)
        load.start()
        begun = time.monotonic()
        took = {}
        for name in AGENTS:
            load.takes(6)
            took[name] = stack.ends(name)
            stack.start_named(name)
            workers_ready(stack, "python", 2)
        load.takes(6)
        took["control"] = stack.ends("control")
        stack.start_control()
        workers_ready(stack, "python", 2)
        load.takes(6)
        load.over.set()
        load.join()
        whole = time.monotonic() - begun
        records = {job: stack.end_of(endpoint, job) for endpoint, job in load.accepted}
        done = time.monotonic() - begun
    finally:
        load.over.set()
        if load.ident is not None:
            load.join()
        stack.stop()
    check(records, (tmp_path / "runs").read_text().splitlines())
    ends = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items())
    print(f"\n{len(records)} jobs over a rolling restart of {whole:.1f} s, all done after {done:.1f} s")
    print(f"SIGTERM to exit: {ends}; submissions sent again: {dict(load.refused)}")


def check(records: dict[str, dict[str, Any]], lines: list[str]) -> None:
    assert len(records) >= 24  # what the four waits for more jobs make sure of
    wrong = {job: r for job, r in records.items() if r["status"] != "COMPLETED" or r.get("retries", 0)}
    assert wrong == {}
    for word in ("begins", "ends"):
        ran = Counter(line.split()[0] for line in lines if line.endswith(word))
        assert ran == Counter(list(records)), word
