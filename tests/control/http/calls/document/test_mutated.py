"""Damaged requests by the thousand: each gets a documented answer, nothing breaks, and memory stays flat."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import httpx2
import psutil
import pytest
from starlette.types import ASGIApp

from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StoredChunk
from stoker.control.rules.submissions import parse_submission
from stoker.control.rules.types import JobView
from tests.control.http.calls.document.mutations import Sent, request
from tests.control.http.calls.fake_plane import FakePlane

ANSWERS = {200, 400, 401, 404, 405, 413, 422}
TIDY_EVERY = 500
GROWTH_BYTES = 16 * 2**20
GROWTH_OBJECTS = 2_000
DONE = JobView("", "", JobState.COMPLETED, 0.0, output=b'{"x":1}')


class Answered:
    """One request, sent and heard to its end; the caller leaves after its body where the answer goes on."""

    def __init__(self, sent: Sent) -> None:
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": sent.method,
            "scheme": "http",
            "path": sent.path,
            "raw_path": sent.path.encode("utf-8", "surrogatepass"),
            "query_string": sent.query,
            "root_path": "",
            "headers": sent.headers,
            "server": ("stoker", 80),
            "client": ("caller", 1),
        }
        self._coming = [
            {"type": "http.request", "body": chunk, "more_body": n + 1 < len(sent.body)}
            for n, chunk in enumerate(sent.body)
        ]
        self.status = 0
        self.body = bytearray()
        self.content_type = ""

    async def receive(self) -> dict[str, Any]:
        return self._coming.pop(0) if self._coming else {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.content_type = dict(message["headers"])[b"content-type"].decode()
        else:
            self.body += message.get("body", b"")


def check(answered: Answered) -> None:
    assert answered.status in ANSWERS
    if answered.content_type != "application/json":
        assert answered.content_type.startswith(("text/event-stream", "text/html"))
        return
    if answered.scope["method"] == "HEAD" and not answered.body:
        return
    reported = json.loads(answered.body)
    if answered.status != 200:
        assert reported["error"]
        assert len(reported["error"]) < 2_000
        assert reported.get("status", 404) in (answered.status, "FAILED")


def stock(plane: FakePlane) -> None:
    """Forgets what came in, as a store would that is emptied now and then."""
    for value in vars(plane).values():
        if isinstance(value, (list, dict)):
            value.clear()
    for state in JobState:
        plane.add(id=f"job-{state}", state=state)
        plane.chunks[f"job-{state}"] = [StoredChunk(1, 0, b"1")]


async def flood(app: ASGIApp, plane: FakePlane, seed: int, numbers: range) -> Counter[int]:
    statuses: Counter[int] = Counter()
    for n in numbers:
        if n % TIDY_EVERY == 0:
            stock(plane)
        answered = Answered(request(seed, n))
        try:
            await app(answered.scope, answered.receive, answered.send)
            check(answered)
            for submission in plane.submitted:
                # What was accepted is JSON that every later reader takes, the strictest included.
                assert parse_submission(b'{"input":' + submission.input + b"}").input == submission.input
        except BaseException as error:
            error.add_note(f"request {n} of seed {seed}: {request(seed, n)}, answered {answered.status}")
            raise
        plane.submitted.clear()
        statuses[answered.status] += 1
    stock(plane)
    await asyncio.sleep(0)  # the loop forgets the timers that were cancelled
    return statuses


def own_memory() -> int:
    """What this process has written. Pages of libraries come and go as the machine has room for them."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)


async def flooded(count: int, seed: int) -> None:
    plane = FakePlane(ends_at_once=DONE, patience=0.0)
    app = make_app(plane, ApiSettings(rate_limits=False))
    transport: Any = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert (await http.get("/openapi.json")).is_success  # its shapes are compiled then, and stay
    warm_up = count // 10
    await flood(app, plane, seed, range(warm_up))
    gc.collect()
    before, objects = own_memory(), len(gc.get_objects())
    statuses = await flood(app, plane, seed, range(warm_up, count))
    gc.collect()
    assert len(gc.get_objects()) - objects < GROWTH_OBJECTS
    assert own_memory() - before < GROWTH_BYTES
    assert set(statuses) == ANSWERS  # the damage reaches every answer
    assert statuses[200] > count / 20


def flooded_alone(count: int, seed: int) -> None:
    """In a process of its own: what other tests keep or give back is not counted here."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error", __file__, str(count), str(seed)]
    result = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.slow
def test_three_thousand_damaged_requests() -> None:
    flooded_alone(3_000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_damaged_requests() -> None:
    flooded_alone(100_000, seed=2)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)  # to stderr, where the test wants nothing
    asyncio.run(flooded(int(sys.argv[1]), int(sys.argv[2])))
