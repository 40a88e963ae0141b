"""`job.fetch`: the worker's half of it against a scripted agent, and LocalJob's own."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.server
import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stoker.worker import HandlerError, InputRefused, Job
from stoker.worker.frames import Frame, encode
from stoker.worker.job.attempt import Attempt
from stoker.worker.job.inputs import fetch_async, fetch_request
from stoker.worker.testing import LocalJob

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def answer(agent: Any, requested: Frame, body: bytes) -> None:
    fd = os.memfd_create("answer", os.MFD_CLOEXEC)
    os.write(fd, body)
    fields = {name: requested.fields[name] for name in ("job", "attempt", "n")}
    digest = hashlib.sha256(body).hexdigest()
    data, fds = encode(Frame("fetched", {**fields, "size": len(body), "sha256": digest}, fd=fd))
    socket.send_fds(agent.sock, [data], fds)
    os.close(fd)


def refuse(agent: Any, requested: Frame, reason: str = "not_found", *, retryable: bool = False) -> None:
    fields = {name: requested.fields[name] for name in ("job", "attempt", "n")}
    agent.send("fetch_failed", reason=reason, error=f"a.test: {reason}", retryable=retryable, **fields)


def output(frames: list[Frame]) -> Any:
    assert frames[-1].kind == "done", frames[-1].fields
    return json.loads(frames[-1].body)


@pytest.mark.parametrize("slots", [1, 2])
def test_what_was_fetched_is_a_file_of_the_jobs_own(start_worker: Any, slots: int) -> None:
    """On the main thread, and on a thread of several."""
    agent = start_worker("access/fetches.py:handler")
    agent.setup(concurrency=slots)
    agent.run(
        b'{"url": "http://a.test/x?sig=1", "max_bytes": 500, "media_types": ["image/*"], "timeout_s": 3}'
    )
    request = agent.next()
    assert request.kind == "fetch"
    assert request.fields == {
        "job": "j", "attempt": 1, "n": 0, "url": "http://a.test/x?sig=1", "max_bytes": 500, "timeout_s": 3.0,
    }  # fmt: skip
    answer(agent, request, PNG)
    assert output(agent.until_end()) == {
        "path": "input-0.png", "body": PNG.decode("latin1"), "size": len(PNG),
        "sha256": hashlib.sha256(PNG).hexdigest(), "media_type": "image/png",
    }  # fmt: skip


def test_a_refusal_is_an_error_with_a_reason(start_worker: Any) -> None:
    agent = start_worker("access/fetches.py:handler")
    agent.setup()
    agent.run(b'{"url": "http://a.test/"}')
    refuse(agent, agent.next(), "too_slow", retryable=True)
    reported = {"refused": "a.test: too_slow", "reason": "too_slow", "retryable": True}
    assert output(agent.until_end()) == reported


def test_a_type_that_is_not_wanted_is_refused_by_its_bytes(start_worker: Any) -> None:
    agent = start_worker("access/fetches.py:handler")
    agent.setup()
    agent.run(b'{"url": "http://a.test/x.png?token=hunter2", "media_types": ["image/*", "audio/wav"]}')
    answer(agent, agent.next(), b"<!DOCTYPE html><html>no such page</html>")
    found = output(agent.until_end())
    assert found["reason"] == "wrong_type"
    assert found["refused"] == "http://a.test/x.png is text/html; expected image/* or audio/wav"
    assert os.listdir(agent.scratch) == []


def test_a_cancel_ends_a_fetch(start_worker: Any) -> None:
    agent = start_worker("access/fetches.py:handler")
    agent.setup()
    agent.run(b'{"url": "http://a.test/"}')
    request = agent.next()
    agent.cancel()
    ended = agent.next()
    assert (ended.kind, ended.fields["error"]) == ("failed", "cancelled: asked")
    answer(agent, request, b"too late")
    agent.run(b'{"url": "http://a.test/"}', job="j2")
    answer(agent, agent.next(), b"in time")
    assert output(agent.until_end())["body"] == "in time"
    assert _descriptors(agent) == []


def _descriptors(agent: Any) -> list[str]:
    """Those with an answer, once it has nothing more to do."""
    assert agent.is_silent()
    folder = Path(f"/proc/{agent.process.pid}/fd")
    found = [os.readlink(path) for path in folder.iterdir()]
    return [path for path in found if "memfd:" in path]


def test_a_thread_that_still_waits_holds_up_no_next_job(start_worker: Any) -> None:
    agent = start_worker("access/fetches.py:leaves_a_fetch_behind")
    agent.setup()
    for job in ("j1", "j2", "j3"):
        agent.run(job=job)
        assert [frame.kind for frame in agent.until_end() if frame.kind != "fetch"] == ["done"]


def test_threads_of_one_job_fetch_side_by_side(start_worker: Any) -> None:
    agent = start_worker("access/fetches.py:in_threads")
    agent.setup()
    agent.run(b'{"urls": ["http://a.test/0", "http://a.test/1", "http://a.test/2"]}')
    request = [agent.next() for _ in range(3)]
    for each in reversed(request):
        answer(agent, each, each.fields["url"].encode())
    assert output(agent.until_end()) == [f"http://a.test/{n}" for n in range(3)]


def test_an_asynchronous_handler_fetches_while_its_loop_runs(start_worker: Any) -> None:
    agent = start_worker("access/fetches.py:handler_async")
    agent.setup(concurrency=2)
    agent.run(b'{"urls": ["http://a.test/0", "http://a.test/1"]}')
    request = [agent.next(), agent.next()]
    agent.run(b'{"urls": []}', job="j2")
    assert agent.next().job == "j2", "another job ends meanwhile"
    for each in reversed(request):
        answer(agent, each, each.fields["url"].encode())
    found = output(agent.until_end())
    assert found["bodies"] == ["http://a.test/0", "http://a.test/1"]
    assert found["ticks"] > 1
    assert len(set(found["paths"])) == 2


def test_who_stops_waiting_drops_what_comes_later(start_worker: Any) -> None:
    agent = start_worker("access/fetches.py:handler_async")
    agent.setup()
    agent.run(b'{"url": "http://a.test/", "within": 0.01}')
    request = agent.next()
    assert output(agent.until_end()) == "left"
    answer(agent, request, b"too late")
    agent.run(b'{"urls": []}', job="j2")
    agent.until_end()
    assert _descriptors(agent) == []


def test_a_cancel_ends_an_asynchronous_fetch(start_worker: Any) -> None:
    agent = start_worker("access/fetches.py:handler_async")
    agent.setup()
    agent.run(b'{"urls": ["http://a.test/"]}')
    agent.next()
    agent.cancel()
    assert agent.next().fields["error"] == "cancelled: asked"


async def test_a_cancel_before_a_thread_is_free_leaves_no_descriptor(tmp_path: Path) -> None:
    read, write = os.pipe()

    class Answers:
        receives_in_background = True

        def send(self, frame: Frame) -> None:
            about = {"job": "j", "attempt": 1, "n": frame.fields["n"], "size": 1, "sha256": ""}
            attempt.answered(Frame("fetched", about, fd=read))

        def poll(self) -> None: ...

    link: Any = Answers()
    attempt = Attempt(Frame("run", {"job": "j", "attempt": 1, "scratch": str(tmp_path)}), link)
    busy, threads = threading.Event(), ThreadPoolExecutor(1)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(threads)
    others = loop.run_in_executor(None, busy.wait)
    fetching = asyncio.create_task(fetch_async(attempt, fetch_request("http://inputs/a", 9, (), 9.0)))
    while not threads._work_queue.qsize():  # noqa: ASYNC110
        await asyncio.sleep(0)
    fetching.cancel()
    try:
        with pytest.raises(asyncio.CancelledError):
            await fetching
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(read)
    finally:
        busy.set()
        await others
        os.close(write)


def test_a_loop_is_not_held_up(start_worker: Any) -> None:
    agent = start_worker("access/fetches.py:handler_async")
    agent.setup()
    agent.run(b'{"wrongly": true}')
    assert "await job.fetch_async" in agent.until_end()[-1].fields["error"]


# -- a data: URL, and LocalJob


def fetch(url: Any, **limits: Any) -> Any:
    network = limits.pop("network", False)
    found: list[Any] = []

    def handler(job: Job) -> None:
        file = job.fetch(url, **limits)
        found.append((file.path.name, file.path.read_bytes(), file.size, file.sha256, file.media_type))

    def refused(job: Job) -> None:
        try:
            handler(job)
        except InputRefused as error:
            found.append(error)

    LocalJob(refused, network=network).run().result()
    if isinstance(found[0], InputRefused):
        raise found[0]
    return found[0]


def data_url(body: bytes) -> str:
    return "data:audio/wav;base64," + base64.b64encode(body).decode()


def test_a_data_url_is_decoded_and_looked_at() -> None:
    """It says that it is a sound."""
    digest = hashlib.sha256(PNG).hexdigest()
    assert fetch(data_url(PNG)) == ("input-0.png", PNG, len(PNG), digest, "image/png")
    assert fetch("data:,a%20b", media_types="text/plain")[:2] == ("input-0.txt", b"a b")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:image/png;base64,a!b", "malformed"),
        ("data:image/png;base64", "malformed"),
        (data_url(bytes(101)), "too_large"),
        ("data:," + "x" * 101, "too_large"),
        (data_url(b"<html>"), "wrong_type"),
        ("", "malformed"),
        (None, "malformed"),
        ("http://a.test/" + "x" * 9000, "malformed"),
        ("ftp://a.test/", "scheme"),
        ("http://a.test/?hunter2", "unreachable"),
        ("/no/such/file", "not_found"),
    ],
)
def test_what_cannot_be_had_says_why(url: Any, reason: str) -> None:
    with pytest.raises(InputRefused) as caught:
        fetch(url, max_bytes=100, media_types=("image/*",))
    assert caught.value.reason == reason
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("limits", [{"max_bytes": -1}, {"timeout_s": 0}, {"timeout_s": float("nan")}])
def test_limits_that_are_none(limits: Any) -> None:
    with pytest.raises(HandlerError):
        fetch("data:,x", **limits)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_local_job_takes_paths(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"fLaC and so on")
    name, body, *_, media_type = fetch(f"{scheme}{path}")
    assert (name, body, media_type) == ("input-0.flac", b"fLaC and so on", "audio/flac")
    with pytest.raises(InputRefused, match="at most 3 are allowed"):
        fetch(f"{scheme}{path}", max_bytes=3)


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/a" else 404)
        self.end_headers()
        self.wfile.write(b"ID3 a song")

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    serving = http.server.HTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}"
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_a_local_job_uses_the_network_if_requested(server: str) -> None:
    assert fetch(f"{server}/a", network=True)[4] == "audio/mpeg"
    with pytest.raises(InputRefused, match="answered 404") as caught:
        fetch(f"{server}/b", network=True)
    assert caught.value.reason == "not_found"
    with pytest.raises(InputRefused, match="more than the 3 bytes"):
        fetch(f"{server}/a", network=True, max_bytes=3)


def test_a_local_job_of_an_asynchronous_handler(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("hello")

    async def handler(job: Job) -> str:
        found = await job.fetch_async(str(path))
        return found.path.read_text() + (await job.fetch_async("data:,!")).path.read_text()

    assert LocalJob(handler).run().result() == "hello!"


def test_a_local_job_holds_up_no_loop_either() -> None:
    async def never(job: Job) -> object:
        return job.fetch("data:,x")

    assert "await job.fetch_async" in str(LocalJob(never).run().error)
