"""An endpoint over REST, with real processes: called, changed under load, kept over a restart, deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx2
import psutil
import pytest

from tests.system.stack import HANDLERS, Stack, running, until


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("rest")) as started:
        yield started


class Rest:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx2.Response:
        return self.stack.http.request(method, f"{self.stack.facts['http']}/v1{path}", json=body)

    def result(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self.request(method, path, body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def workers(self, endpoint: str) -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = self.result("GET", f"/endpoints/{endpoint}?includeWorkers=true")[
            "workers"
        ]
        return reported


@pytest.mark.slow
def test_from_creation_to_deletion(stack: Stack) -> None:
    rest = Rest(stack)
    place = os.path.relpath(HANDLERS / "access/tells_what_it_sees.py", stack.config.parent)
    made_from = rest.result("POST", "/templates", {"name": "t", "imageName": f"local:{place}:handler"})
    requested = {"templateId": made_from["id"], "name": "e", "workersMin": 1, "workersMax": 2}
    endpoint = rest.result("POST", "/endpoints", requested)["id"]
    first = psutil.Process(stack.runsync(endpoint, {})["output"]["pid"])

    done = Event()
    ended: list[str] = []

    def load() -> None:
        """Slowly enough for the limit of calls in ten seconds, however fast they are answered."""
        while not done.wait(0.02):
            ended.append(stack.runsync(endpoint, {})["status"])

    with ThreadPoolExecutor(2) as callers:
        loads = [callers.submit(load) for _ in range(2)]

        def more_have_ended() -> None:
            wanted = len(ended) + 5
            until(lambda: len(ended) >= wanted or any(one.done() for one in loads), 120, "more jobs")

        try:
            more_have_ended()
            rest.result("PATCH", f"/templates/{made_from['id']}", {"env": {"MODE": "fast"}})

            def renewed() -> bool:
                workers = rest.workers(endpoint)
                return bool(workers) and not any(one["isStale"] for one in workers)

            until(renewed, 120, "workers of the new version alone")
            more_have_ended()
        finally:
            done.set()
        for one in loads:
            one.result()
    assert set(ended) == {"COMPLETED"}

    stack.kill("control")
    stack.start_control()
    assert rest.result("GET", f"/endpoints/{endpoint}")["version"] == 2
    second = psutil.Process(stack.runsync(endpoint, {})["output"]["pid"])
    assert second.is_running()

    assert rest.request("DELETE", f"/endpoints/{endpoint}").status_code == 204
    assert stack.http.post(f"/{endpoint}/run", json={"input": {}}).status_code == 404
    assert rest.request("DELETE", f"/templates/{made_from['id']}").status_code == 204
    assert psutil.wait_procs([first, second], timeout=120)[1] == []
