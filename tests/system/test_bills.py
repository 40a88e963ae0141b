"""Bills that add up, after 1,000 jobs with kill -9 of control, agent and workers at random.

    first half    control, agents, workers are killed: what an agent had not cut is lost, and nobody pays it
    second half   one agent lives on: every moment of its workers is in the bill

Two endpoints: `timed` pays for its workers' time, `sold` is paid for by what its jobs made. Afterwards three
tellers agree: the HTTP API, the store's rows, and the file in which the handlers noted their runs. The seed
is printed; STOKER_SEED takes another.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from stoker.control import store
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.wire.messages import Price
from tests.system.faults.test_killed_at_random import living_workers
from tests.system.stack import HANDLERS, STOP_S, Stack, queue_endpoint, running, until

SEED = int(os.environ.get("STOKER_SEED", "20250101"))
JOBS = 1_000
KILLS = 20
CALLERS = 4
PATIENCE_S = 180.0
NANO = 20
WORKERS = 2
PRICES = "[prices]\ndevice_second_nano_usd = 333_333_000\nstarting_percent = 50\n"
TIMED = queue_endpoint(
    "timed",
    "recording/works_and_measures.py",
    workersMin=1,
    workersMax=WORKERS,
    maxAttempts=10,
    idleTimeout=3600,
)


def work(n: int, folder: Path) -> dict[str, Any]:
    rng = random.Random(SEED * JOBS + n)
    job_input = {
        "n": n,
        "ms": rng.randint(5, 150),
        "letters": rng.randint(0, 999),
        "dies": rng.random() < 0.01,
    }
    return job_input | {"runs": str(folder / "runs")}


def endpoint_of(n: int) -> str:
    return "sold" if n % 3 == 0 else "timed"


def offer(stack: Stack) -> None:
    """An endpoint whose output has a price: no file can declare one."""
    stack.kill("control")
    run = EndpointVersion(
        f"{HANDLERS / 'recording/works_and_measures.py'}:handler", prices=(Price("letters", NANO),)
    )
    sold = Endpoint(
        "sold",
        "default",
        "sold",
        1,
        run,
        hosted=True,
        origin="api",
        workers_min=1,
        workers_max=WORKERS,
        max_attempts=10,
        idle_timeout_s=3600,
    )
    opened = store.open_store(stack.folder / "data" / "stoker.db")
    opened.writer.begin()
    store.put_endpoint(opened.writer, sold, time.time())
    opened.writer.commit()
    opened.close()
    stack.start_control()


# ---- the callers --------------------------------------------------------------------------------


class Callers:
    """Submit as many jobs as `let` allows, and wait for the ends of all."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._url = str(stack.http.base_url)
        self._left = iter(range(JOBS))
        self._lock = threading.Lock()
        self._may = threading.Semaphore(0)
        self._pause = threading.Event()  # never set: its wait is the pause before a call is made again
        self.accepted: dict[int, str] = {}

    def let(self, number: int) -> None:
        self._may.release(number)

    def submit_all(self) -> None:
        headers = {"Authorization": f"Bearer {self._stack.key}"}
        with httpx2.Client(base_url=self._url, headers=headers, timeout=30, trust_env=False) as http:
            while (n := self._next()) is not None:
                once = {"Idempotency-Key": f"job-{n}"}
                body = {"input": work(n, self._stack.folder)}
                answer = self._ask(http, "POST", f"/{endpoint_of(n)}/run", json=body, headers=once)
                self.accepted[n] = answer["id"]

    def ends(self) -> dict[int, str]:
        headers = {"Authorization": f"Bearer {self._stack.key}"}
        with httpx2.Client(base_url=self._url, headers=headers, timeout=30, trust_env=False) as http:
            return {n: self._end(http, n) for n in sorted(self.accepted)}

    def _end(self, http: httpx2.Client, n: int) -> str:
        path = f"/{endpoint_of(n)}/status-sync/{self.accepted[n]}?wait=20000"
        deadline = time.monotonic() + PATIENCE_S
        while (record := self._ask(http, "GET", path))["status"] in {"IN_QUEUE", "IN_PROGRESS"}:
            assert time.monotonic() < deadline, f"job {n} never ended: {record}"
        return str(record["status"])

    def _next(self) -> int | None:
        self._may.acquire()
        with self._lock:
            return next(self._left, None)

    def _ask(self, http: httpx2.Client, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Until it is answered: control may be dead just now, or ask for patience."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                answer = http.request(method, path, **more)
            except httpx2.TransportError:
                self._pause.wait(0.1)
                continue
            if answer.status_code == 200:
                return dict(answer.json())
            assert answer.status_code in {429, 503}, f"{method} {path}: {answer.status_code} {answer.text}"
            self._pause.wait(float(answer.headers["Retry-After"]))
        raise AssertionError(f"{method} {path} got no answer in {PATIENCE_S:.0f} s")


# ---- the killer ---------------------------------------------------------------------------------


def kill_one(stack: Stack, rng: random.Random, *, agents: bool) -> str:
    victim = rng.choice(["control", "worker", "worker", *(["agent", "agent", "both"] if agents else [])])
    if victim == "worker":
        with contextlib.suppress(psutil.NoSuchProcess):
            rng.choice(living_workers(stack)).kill()
        return victim
    named = ["control", "agent"] if victim == "both" else [victim]
    for name in named:
        stack.kill(name)
    for name in named:
        getattr(stack, f"start_{name}")()
    return victim


def disturb(stack: Stack, callers: Callers) -> tuple[list[str], float]:
    """Who was killed, in the middle of a portion each; and when the last agent was started."""
    rng, killed, portion, since = random.Random(SEED), [], JOBS // KILLS, time.time()
    for number in range(KILLS):
        callers.let(portion)
        wanted = number * portion + rng.randint(1, portion)
        until(lambda wanted=wanted: len(callers.accepted) >= wanted, PATIENCE_S, f"{wanted} jobs accepted")  # type: ignore[misc]
        before = stack.agent.pid
        killed.append(kill_one(stack, rng, agents=number < KILLS // 2))
        if stack.agent.pid != before:
            since = time.time()
    return killed, since


# ---- what must hold afterwards ------------------------------------------------------------------


class Books:
    """The store, opened read-only after control has ended."""

    def __init__(self, folder: Path) -> None:
        self._conn = sqlite3.connect(f"file:{folder / 'data' / 'stoker.db'}?mode=ro", uri=True)
        self.spans = self.ask(
            "SELECT owner, boot, n, resource, state, began_ms, ended_ms, billed_ms, nano_usd FROM usage"
        )

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self._conn.execute(statement).fetchall()

    def close(self) -> None:
        self._conn.close()


def check_spans(books: Books, began_s: float, ended_s: float) -> None:
    """Each once, none over another, all while there was a stack, and at the price."""
    by_owner = defaultdict(list)
    for owner, _boot, _n, resource, state, began, ended, billed, nano in books.spans:
        by_owner[owner].append((began, ended))
        assert began_s * 1000 - 1_000 <= began < ended <= ended_s * 1000 + 1_000
        if resource == "sold":
            assert (billed, nano) == (0, 0)
        else:
            percent = 50 if state == "starting" else 100
            exact = 333_333_000 * (ended - began) * percent / 100_000
            assert billed == ended - began
            assert abs(nano - exact) <= 1
    for spans in by_owner.values():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(spans)), spans
    assert len({span[:3] for span in books.spans}) == len(books.spans)
    used_ms = sum(ended - began for *_, began, ended, _billed, _nano in books.spans)
    assert used_ms <= (ended_s - began_s) * 1000 * 2 * WORKERS


def check_runs(books: Books, folder: Path, since_s: float) -> tuple[float, int]:
    """All that handlers ran under the last agent is in the spans of its workers."""
    began: dict[str, float] = {}
    ran_s = 0.0
    for line in (folder / "runs").read_text().splitlines():
        what, job, attempt, at = line.split()
        if what == "began":
            began[f"{job} {attempt}"] = float(at)
        elif began[f"{job} {attempt}"] >= since_s:
            ran_s += float(at) - began[f"{job} {attempt}"]
    _, last, *_ = max(books.spans, key=lambda span: span[6])
    billed_ms = sum(span[6] - span[5] for span in books.spans if span[1] == last and span[4] == "running")
    assert billed_ms >= ran_s * 1000 - len(books.spans)
    return ran_s, billed_ms


def check_outputs(books: Books, callers: Callers, ends: dict[int, str], folder: Path) -> None:
    """What each job made is sold once."""
    sold = {
        n: job for n, job in callers.accepted.items() if endpoint_of(n) == "sold" and ends[n] == "COMPLETED"
    }
    wanted = {job: work(n, folder)["letters"] for n, job in sold.items()}
    found = books.ask("SELECT job, quantity, nano_usd FROM spans WHERE unit != 'device_ms'")
    assert len(found) == len(wanted) > JOBS // 4
    assert {job: quantity for job, quantity, _ in found} == wanted
    assert all(nano == quantity * NANO for _, quantity, nano in found)
    ((billed, nano),) = books.ask("SELECT SUM(billed_ms), SUM(nano_usd) FROM bills WHERE resource = 'sold'")
    assert (billed, nano) == (0, sum(wanted.values()) * NANO)


def bills_by_bucket(stack: Stack) -> dict[tuple[str, str], tuple[int, int]]:
    """By bucket size and grouping: milliseconds and nano-USD, over all records."""
    found = {}
    url = stack.facts["http"] + "/v1/billing/endpoints"
    for size, by in product(("hour", "day", "week", "month", "year"), ("endpointId", "podId", "gpuTypeId")):
        answer = stack.http.get(url, params={"bucketSize": size, "grouping": by})
        assert answer.status_code == 200, answer.text
        records = answer.json()
        nano = sum(round(record["amount"] * 1e9) for record in records)
        found[size, by] = sum(record["timeBilledMs"] for record in records), nano
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bills_add_up_after_a_thousand_jobs_with_kills(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    began_s = time.time()
    with running(tmp_path, PRICES, TIMED) as stack, ThreadPoolExecutor(CALLERS) as pool:
        offer(stack)
        callers = Callers(stack)
        submitting = [pool.submit(callers.submit_all) for _ in range(CALLERS)]
        try:
            killed, since_s = disturb(stack, callers)
        finally:
            callers.let(JOBS)
        for one in submitting:
            one.result()
        ends = callers.ends()
        stack.agent.send_signal(signal.SIGTERM)  # it delivers what it has measured
        assert stack.agent.wait(STOP_S) == 0
        sums = bills_by_bucket(stack)
    ended_s = time.time()
    assert len(ends) == JOBS
    assert set(ends.values()) == {"COMPLETED"}
    books = Books(tmp_path)
    try:
        check_spans(books, began_s, ended_s)
        ran_s, running_ms = check_runs(books, tmp_path, since_s)
        check_outputs(books, callers, ends, tmp_path)
        ((time_ms, nano),) = books.ask("SELECT SUM(billed_ms), SUM(nano_usd) FROM usage")
        ((outputs,),) = books.ask("SELECT SUM(nano_usd) FROM spans WHERE unit != 'device_ms'")
    finally:
        books.close()
    assert set(sums.values()) == {(time_ms, nano + outputs)}
    print(
        f"killed {killed}; {len(books.spans)} spans, {time_ms / 1000:.1f} s billed; the last agent's handlers"
        f" ran {ran_s:.1f} s, billed running {running_ms / 1000:.1f} s; {ended_s - began_s:.0f} s in all"
    )
