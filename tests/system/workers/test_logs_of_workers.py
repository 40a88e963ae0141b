"""What real workers print, over the API and at a terminal: HTTP servers, and workers of a queue."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from stoker.client import Client, NotFound
from tests.system.dev.dev_server import started, stoker
from tests.system.stack import START_S, Stack, queue_endpoint, running, until
from tests.system.workers.test_load_balancing import server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    endpoints = (
        server("talks", "talkative", workersMin=1, workersMax=1),
        server("brief", "talkative", workersMin=0, idleTimeout=5),
        queue_endpoint("prints", "printing/prints_as_told.py", concurrency=1),
    )
    with running(tmp_path_factory.mktemp("stack"), *endpoints) as stack:
        yield stack


def says(stack: Stack, endpoint: str, line: str, path: str = "print") -> str:
    """Has a worker print the line, and returns its id."""
    answer = stack.http.post(f"/{endpoint}/{path}", content=line.encode())
    return str(answer.headers.get("x-runpod-worker-id", ""))


def client(stack: Stack) -> Client:
    return Client(stack.facts["http"], stack.key)


def test_an_http_workers_lines_arrive_with_their_times_through_its_restart(
    stack: Stack, tmp_path: Path
) -> None:
    worker = says(stack, "talks", "the first line")
    with client(stack) as api:
        log = api.worker_log("talks", worker)
        assert log.lines == ("listening", "the first line")
        assert all(abs(at / 1000 - time.time()) < START_S for at in log.printed_at)
        events = api.worker_log("talks", worker, follow=True)
        seen = [next(events), next(events)]
        says(stack, "talks", "its last words", "end")
        seen += [next(events), next(events)]
        assert [(one.id, one.value["line"]) for one in seen] == [
            ("0-0", "listening"),
            ("0-1", "the first line"),
            ("0-2", "its last words"),
            ("0-3", "listening"),
        ]
        times = [one.value["printedAt"] for one in seen]
        assert times == sorted(times)
        events.close()  # type: ignore[attr-defined]
    shown = stoker(tmp_path, "logs", "talks", stack=stack)
    assert shown.returncode == 0, shown.stderr
    at = time.strftime("%H:%M:%S", time.localtime(times[1] / 1000))
    assert f"{at} talks/{worker} the first line\n" in shown.stdout
    assert len(re.findall(rf"^\d\d:\d\d:\d\d talks/{worker} ", shown.stdout, re.MULTILINE)) == 4
    with started(tmp_path, "logs", "talks", "--follow", stack=stack) as following:
        until(lambda: "its last words" in following.printed, START_S, "what is remembered")
        says(stack, "talks", "a new line")
        until(lambda: f"talks/{worker} a new line" in following.printed, START_S, "a new line")
        assert following.stop() == 0


def test_a_queue_workers_log_is_all_that_it_prints(stack: Stack, tmp_path: Path) -> None:
    workers = {stack.runsync("prints", {"lines": 2})["workerId"] for _ in range(2)}
    (worker,) = workers
    with client(stack) as api:
        log = api.worker_log("prints", worker)
    assert [line.partition(" ")[2] for line in log.lines] == ["line 0", "line 1"] * 2
    for line, printed_at in zip(log.lines, log.printed_at, strict=True):
        assert abs(float(line.split()[0]) - printed_at / 1000) < 5
    shown = stoker(tmp_path, "logs", "prints", "--worker", worker[:6], stack=stack)
    assert shown.stdout.count(f" prints/{worker} ") == 4, shown.stderr
    assert " prints " in stoker(tmp_path, "logs", "prints", stack=stack).stdout, "those of its jobs"


def test_the_log_of_a_worker_ends_with_it(stack: Stack, tmp_path: Path) -> None:
    worker = says(stack, "brief", "before it goes")
    with client(stack) as api:
        *lines, end = api.worker_log("brief", worker, follow=True)
        assert [one.value["line"] for one in lines] == ["listening", "before it goes"]
        assert (end.kind, end.value) == ("end", {"id": worker})
        with pytest.raises(NotFound, match=f"endpoint brief has no worker '{worker}'"):
            api.worker_log("brief", worker)
    url = f"{stack.facts['http']}/v1/endpoints/talks/workers/{worker}/logs"
    assert httpx2.get(url, headers=stack.http.headers, trust_env=False).status_code == 404
    assert "it has no workers now" in stoker(tmp_path, "logs", "brief", stack=stack).stdout
    refused = stoker(tmp_path, "logs", "brief", "--worker", worker, stack=stack)
    assert f"there is no worker {worker} of brief: there are none now" in refused.stderr
    assert refused.returncode == 1
