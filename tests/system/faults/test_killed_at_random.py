"""kill -9 of control, agent, workers and zygotes at random while 5,000 jobs come in: each ends, once.

    callers ──(a portion of submissions for each kill)──> control ──> agent ──> zygote, its spare ──> workers
       '── ask again when refused or cut off              ^ killed, started again by the test: control, agent
                                                          '──────── killed, replaced by the agent: the others

Afterwards every accepted job has ended, once, and three tellers agree: HTTP, the store's rows, and the file
in which the handlers noted each attempt that they began. The seed is printed; STOKER_SEED takes another.
Which process dies is the seed's choice; what it was doing just then is not, so that a seed repeats a run only
roughly.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.system.stack import Stack, queue_endpoint, running

SEED = int(os.environ.get("STOKER_SEED", "20250101"))
JOBS = 5_000
KILLS = 32
CALLERS = 8
PORTION = -(-JOBS // KILLS)
PATIENCE_S = 180.0
"""For one call that is refused or cut off, asked again until it is answered."""

ZYGOTE_S = 10.0
"""An agent that has just been started again has none yet. One that has lost some may do without."""

VICTIMS = ("control", "agent", "both", "worker", "worker", "zygote", "zygote")

ENDPOINTS = [
    queue_endpoint(name, "recording/mixed_work.py", workersMin=1, workersMax=2, maxAttempts=10, **more)
    for name, more in (("left", {}), ("right", {"preload": ["xml.dom.minidom"]}), ("short", {}))
]
KINDS = (
    *["quick"] * 70,
    *["slow"] * 14,
    *["stream"] * 8,
    *["file"] * 4,
    *["dies"] * 1,
    *["raises"] * 3,
)
SHORT_KINDS = (*["quick"] * 195, *["stream"] * 2, *["slow"] * 1, *["dies"] * 1, *["raises"] * 1)
"""So short that some lie ahead of their worker, behind one that takes long or kills it."""

ENDED = {"COMPLETED", "FAILED"}


def work(n: int, folder: Path) -> dict[str, Any]:
    rng = random.Random(SEED * JOBS + n)
    kind = rng.choice(SHORT_KINDS if endpoint_of(n) == "short" else KINDS)
    return {"n": n, "kind": kind, "ms": rng.randint(20, 400), "runs": str(folder / "runs")}


def endpoint_of(n: int) -> str:
    return ("left", "right", "short", "short", "short")[n % 5]


# ---- the callers --------------------------------------------------------------------------------


class Callers:
    """Submits the jobs, as many as `let` allows, and remembers what was accepted."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._url = str(stack.http.base_url)
        self._left = iter(range(JOBS))
        self._lock = threading.Lock()
        self._may = threading.Semaphore(0)
        self._pause = threading.Event()  # never set: its wait is the pause before a call is made again
        self.accepted: dict[int, str] = {}
        self.again = Counter[str]()

    def let(self, number: int) -> None:
        self._may.release(number)

    def submit_all(self) -> None:
        with self.client() as http:
            while (n := self._next()) is not None:
                body = {"input": work(n, self._stack.folder)}
                headers = {"Idempotency-Key": f"job-{n}"}
                answer = self.query(http, "POST", f"/{endpoint_of(n)}/run", json=body, headers=headers)
                self.accepted[n] = answer["id"]

    def accepted_at_least(self, number: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.accepted) < number:
            assert time.monotonic() < deadline, f"{len(self.accepted)} accepted, {number} awaited"
            self._pause.wait(0.005)

    def _next(self) -> int | None:
        self._may.acquire()
        with self._lock:
            return next(self._left, None)

    def client(self) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self._stack.key}"}
        return httpx2.Client(base_url=self._url, headers=headers, timeout=30, trust_env=False)

    def query(self, http: httpx2.Client, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Until it is answered: control may be dead just now, or ask for patience."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                answer = http.request(method, path, **more)
            except httpx2.TransportError as error:
                self.again[type(error).__name__] += 1
                self._pause.wait(0.1)
                continue
            if answer.status_code == 200:
                return dict(answer.json())
            assert answer.status_code in {429, 503}, f"{method} {path}: {answer.status_code} {answer.text}"
            self.again[str(answer.status_code)] += 1
            self._pause.wait(float(answer.headers["Retry-After"]))
        raise AssertionError(f"{method} {path} got no answer in {PATIENCE_S:.0f} s")

    def ends_of(self, numbers: range) -> dict[int, dict[str, Any]]:
        """The records once they have ended."""
        with self.client() as http:
            return {n: self._end_of(http, n) for n in numbers}

    def _end_of(self, http: httpx2.Client, n: int) -> dict[str, Any]:
        """Asked again as long as it is held without an end."""
        path = f"/{endpoint_of(n)}/status-sync/{self.accepted[n]}?wait=20000"
        deadline = time.monotonic() + PATIENCE_S
        while (record := self.query(http, "GET", path))["status"] not in ENDED:
            assert record["status"] in {"IN_QUEUE", "IN_PROGRESS"}, record
            assert time.monotonic() < deadline, f"job {n} never ended: {record}"
        return record


# ---- the killer ---------------------------------------------------------------------------------


def living_workers(stack: Stack) -> list[psutil.Process]:
    """At least one: the agent may just be starting it."""
    found = living(stack, "stoker.worker.runtime", PATIENCE_S)
    assert found, f"the agent started no worker in {PATIENCE_S:.0f} s"
    return found


def living(stack: Stack, module: str, patience_s: float) -> list[psutil.Process]:
    """None only where none came in all that time."""
    pause, deadline = threading.Event(), time.monotonic() + patience_s
    while not (found := children(stack, module)) and time.monotonic() < deadline:
        pause.wait(0.02)
    return found


def children(stack: Stack, module: str) -> list[psutil.Process]:
    """The agent's that run this module. A spare shows its template's until it is a worker."""
    found = []
    with contextlib.suppress(psutil.Error):
        for one in psutil.Process(stack.agent.pid).children():
            with contextlib.suppress(psutil.Error):
                found += [one] if module in one.cmdline() else []
    return found


def kill_one(stack: Stack, victim: str, rng: random.Random, zygote_s: float) -> str:
    zygotes = living(stack, "stoker.worker.zygote.zygote", zygote_s) if victim == "zygote" else []
    if victim in ("worker", "zygote"):
        with contextlib.suppress(psutil.NoSuchProcess):
            rng.choice(zygotes or living_workers(stack)).kill()
        return "zygote" if zygotes else "worker"
    named = ["control", "agent"] if victim == "both" else [victim]
    for name in named:
        stack.kill(name)
    for name in named:
        getattr(stack, f"start_{name}")()
    return victim


def disturb(stack: Stack, callers: Callers) -> Counter[str]:
    """Each kill falls into the middle of a portion: some of it is accepted, and some of that is running. Each
    kind is there, whatever the seed; and the first zygote, of which none was lost yet, surely comes."""
    rng, killed = random.Random(SEED), Counter[str]()
    victims = [*VICTIMS, *rng.choices(VICTIMS, k=KILLS - len(VICTIMS))]
    rng.shuffle(victims)
    for number, victim in enumerate(victims):
        callers.let(PORTION)
        callers.accepted_at_least(min(number * PORTION + rng.randint(1, PORTION), JOBS))
        killed[kill_one(stack, victim, rng, ZYGOTE_S if killed["zygote"] else PATIENCE_S)] += 1
    return killed


# ---- what must hold afterwards ------------------------------------------------------------------


def check_record(n: int, record: dict[str, Any], folder: Path, files: httpx2.Client) -> None:
    kind = work(n, folder)["kind"]
    if kind == "raises":
        assert record["status"] == "FAILED", record
        assert f"{n} is refused" in record["error"], record
        return
    assert record["status"] == "COMPLETED", (kind, record)
    output = record["output"]
    assert (output["n"], output["square"]) == (n, n * n), record
    assert record.get("retries", 0) <= output["attempt"] - 1, record
    if kind == "file":
        assert files.get(output["file"]).text == f"made for {n}"


class Rows:
    """The store, opened read-only after control has ended."""

    def __init__(self, folder: Path) -> None:
        self._conn = sqlite3.connect(f"file:{folder / 'data' / 'stoker.db'}?mode=ro", uri=True)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        return self._conn.execute(statement).fetchall()

    def close(self) -> None:
        self._conn.close()


def check_rows(rows: Rows, callers: Callers, records: dict[int, dict[str, Any]]) -> None:
    stored = {
        job: (state, attempt) for job, state, attempt in rows.query("SELECT id, state, attempt FROM jobs")
    }
    assert set(stored) == set(callers.accepted.values())
    for n, record in records.items():
        state, attempt = stored[callers.accepted[n]]
        assert state == record["status"], record
        if state == "COMPLETED":
            assert attempt == record["output"]["attempt"], "the result is not the last attempt's"
    counted = Counter(state.lower() for state, _ in stored.values())
    counters = dict(rows.query("SELECT name, SUM(value) FROM counters GROUP BY name"))
    assert {name: counters.get(name, 0) for name in ("completed", "failed", "cancelled")} == {
        name: counted[name] for name in ("completed", "failed", "cancelled")
    }
    assert rows.query("SELECT seq, COUNT(*) FROM results GROUP BY seq HAVING COUNT(*) > 1") == []


def check_bills(rows: Rows) -> None:
    """One span of each kind for an attempt, and the whole execution of the one that ended the job."""
    twice = "SELECT job, attempt, kind FROM spans GROUP BY job, attempt, kind HAVING COUNT(*) > 1"
    assert rows.query(twice) == []
    billed = set(rows.query("SELECT job, attempt, quantity FROM spans WHERE kind = 'execution'"))
    used = rows.query("SELECT id, attempt, execution_ms FROM jobs WHERE execution_ms > 0")
    assert len(used) > 100
    assert set(used) <= billed


def check_attempts(rows: Rows, folder: Path) -> None:
    """No attempt began twice, and the attempt that a result came from did begin."""
    begun = Counter((folder / "runs").read_text().splitlines())
    assert [line for line, times in begun.items() if times > 1] == []
    ended = rows.query("SELECT id, attempt FROM jobs WHERE state = 'COMPLETED'")
    assert {f"{job} {attempt}" for job, attempt in ended} <= set(begun)
    assert rows.query("SELECT id, failures FROM jobs WHERE failures > 10") == []


def check_scratch(stack: Stack) -> None:
    for name in ("scratch", "homes"):
        folder = stack.folder / "agent" / name
        assert not folder.exists() or list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_thousand_jobs_outlive_kills_at_random(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    began = time.monotonic()
    with running(tmp_path, *ENDPOINTS) as stack, ThreadPoolExecutor(CALLERS) as pool:
        callers = Callers(stack)
        submitting = [pool.submit(callers.submit_all) for _ in range(CALLERS)]
        try:
            killed = disturb(stack, callers)
        finally:
            callers.let(JOBS)
        for one in submitting:
            one.result()
        assert len(callers.accepted) == JOBS
        assert killed["zygote"], killed
        ends = pool.map(callers.ends_of, [range(first, JOBS, CALLERS) for first in range(CALLERS)])
        records = {n: record for part in ends for n, record in part.items()}
        with httpx2.Client(trust_env=False, timeout=PATIENCE_S) as files:
            for n, record in records.items():
                check_record(n, record, tmp_path, files)
        print(f"killed {dict(killed)}; asked again {dict(callers.again)}; {time.monotonic() - began:.0f} s")
    check_scratch(stack)
    rows = Rows(tmp_path)
    try:
        check_rows(rows, callers, records)
        check_bills(rows)
        check_attempts(rows, tmp_path)
    finally:
        rows.close()


@pytest.mark.parametrize("orphan", [False, True])
@pytest.mark.slow
def test_a_killed_grandchild_of_a_worker_costs_nothing_but_itself(tmp_path: Path, orphan: bool) -> None:
    """The worker lives on, and the job ends at its first attempt."""
    with running(tmp_path, queue_endpoint("family", "leaving_behind/has_a_grandchild.py")) as stack:
        job_input = {"orphan": orphan, "go": str(tmp_path / "go")}
        job = stack.run("family", job_input)
        first = stack.first_chunk("family", job)
        grandchild = psutil.Process(first["grandchild"])
        grandchild.kill()
        if not orphan:  # whose parent buries it; the agent buries those it inherited twice a minute
            assert psutil.wait_procs([grandchild], timeout=PATIENCE_S)[0] == [grandchild]
        (tmp_path / "go").touch()
        record = stack.end_of("family", job)
        assert (record["status"], record["output"]) == ("COMPLETED", {"attempt": 1}), record
        again = stack.run("family", job_input)
        second = stack.first_chunk("family", again)
        assert second["worker"] == first["worker"]
        assert stack.http.post(f"/family/cancel/{again}").status_code == 200
        assert stack.runsync("family", job_input | {"orphan": True})["status"] == "COMPLETED"
