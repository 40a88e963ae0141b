"""The published trace of a stream, call by call: the handler yields what the test writes into its pipe.

IN_QUEUE []  ->  IN_PROGRESS [0]  ->  ...  ->  COMPLETED [last]  ->  COMPLETED []
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from stoker.client.sse import EventReader, RawEvent
from tests.system.stack import Stack


class Yielding:
    """A job of the `lines` endpoint: `say` lets its handler yield, `end` lets it return."""

    def __init__(self, stack: Stack, pipe: Path) -> None:
        os.mkfifo(pipe)
        self.stack, self.pipe = stack, pipe
        self.job = stack.run("lines", {"pipe": str(pipe)})
        self._lines: TextIO | None = None

    def say(self, text: str) -> None:
        if self._lines is None:
            self._lines = self.pipe.open("w")  # returns once the handler reads
        self._lines.write(text + "\n")
        self._lines.flush()

    def end(self) -> None:
        """Returns when the job has ended."""
        assert self._lines is not None
        self._lines.close()
        assert self.stack.end_of("lines", self.job)["status"] == "COMPLETED"

    def poll(self, wait: int = 60_000) -> tuple[str, list[Any]]:
        answered = self.stack.http.get(f"/lines/stream/{self.job}?wait={wait}").json()
        assert set(answered) == {"status", "stream"}
        return answered["status"], [chunk["output"]["line"] for chunk in answered["stream"]]

    @contextlib.contextmanager
    def events(self, after: str | None = None) -> Iterator[Iterator[RawEvent]]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        with self.stack.http.stream("GET", f"/lines/stream/{self.job}", headers=headers) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            reader = EventReader()
            yield (event for data in answer.iter_bytes() for event in reader.feed(data))


def test_the_published_trace(stack: Stack, tmp_path: Path) -> None:
    before = Yielding(stack, tmp_path / "before")
    before.say("it runs")  # the endpoint has one worker: what comes next waits
    job = Yielding(stack, tmp_path / "job")
    assert job.poll(wait=1000) == ("IN_QUEUE", [])
    before.end()
    for text in ("0", "1", "2"):
        job.say(text)
        assert job.poll() == ("IN_PROGRESS", [text])
    job.say("last")
    job.end()
    assert job.poll() == ("COMPLETED", ["last"])
    assert job.poll() == ("COMPLETED", [])
    assert job.poll() == ("COMPLETED", [])


def test_who_polls_late_gets_every_chunk_with_the_end(stack: Stack, tmp_path: Path) -> None:
    job = Yielding(stack, tmp_path / "job")
    for text in ("0", "1", "2"):
        job.say(text)
    job.end()
    assert job.poll() == ("COMPLETED", ["0", "1", "2"])
    assert job.poll() == ("COMPLETED", [])


@pytest.mark.parametrize(("endpoint", "status"), [("echo", "COMPLETED"), ("raises", "FAILED")])
def test_the_stream_of_a_job_that_yields_nothing_is_its_status(
    stack: Stack, endpoint: str, status: str
) -> None:
    job = stack.runsync(endpoint, {"n": 1})["id"]
    for _ in range(2):
        assert stack.http.get(f"/{endpoint}/stream/{job}").json() == {"status": status, "stream": []}


def test_events_after_a_cut_go_on_where_the_reader_was(stack: Stack, tmp_path: Path) -> None:
    job = Yielding(stack, tmp_path / "job")
    with job.events() as events:
        job.say("0")
        job.say("1")
        first, second = next(events), next(events)
    assert [first, second] == [_chunk("1-0", "0"), _chunk("1-1", "1")]
    job.say("2")  # while nobody listens
    with job.events(after=first.id) as events:
        assert [next(events), next(events)] == [second, _chunk("1-2", "2")]
        job.say("3")
        assert next(events) == _chunk("1-3", "3")
        job.end()
        end = next(events)
    assert end.kind == "end"
    assert json.loads(end.data) == stack.end_of("lines", job.job)


def test_events_do_not_take_from_polls(stack: Stack, tmp_path: Path) -> None:
    job = Yielding(stack, tmp_path / "job")
    job.say("0")
    with job.events() as events:
        assert next(events) == _chunk("1-0", "0")
    assert job.poll() == ("IN_PROGRESS", ["0"])
    job.say("1")
    job.end()
    with job.events() as events:
        assert [event.kind for event in events] == ["chunk", "chunk", "end"]
    assert job.poll() == ("COMPLETED", ["1"])


def _chunk(number: str, text: str) -> RawEvent:
    return RawEvent("chunk", number, json.dumps({"output": {"line": text}}, separators=(",", ":")))
