"""Real worker processes read the chunks that are kept, in each of the three loops."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stoker.worker.frames import Frame, kept_page

LOOPS = {
    "one at a time": ("streams/reads_its_kept.py:handler", 1),
    "on threads": ("streams/reads_its_kept.py:handler", 2),
    "on a loop": ("streams/async_reads_its_kept.py:handler", 2),
}
KEY = {"job": "j", "attempt": 2}
LARGE = "x" * 3_000_000


def goes_on(agent: Any, upto: int) -> None:
    saved = {"input": 4, "upto": upto, "kept": True}
    agent.send("run", b"null{}\nstate", **KEY, scratch=str(agent.scratch), more={"saved": saved})


def answers(agent: Any, frame: Frame) -> None:
    agent.send(frame.kind, frame.body, **frame.fields)


@pytest.mark.parametrize(("handler", "concurrency"), LOOPS.values(), ids=LOOPS)
def test_pages_come_as_they_are_asked_for(start_worker: Any, handler: str, concurrency: int) -> None:
    agent = start_worker(handler)
    agent.setup(concurrency=concurrency)
    goes_on(agent, 3)
    ask = agent.next()
    assert (ask.kind, ask.fields) == ("kept", {**KEY, "n": 0, "first": 0})
    answers(agent, kept_page(ask.fields, [b'"one"', json.dumps(LARGE).encode()]))
    ask = agent.next()
    assert (ask.kind, ask.fields["first"]) == ("kept", 2)
    answers(agent, kept_page(ask.fields, [b'{"n": 3}']))
    end = agent.next()
    assert end.kind == "done", end
    assert json.loads(end.body) == ["one", LARGE, {"n": 3}]


@pytest.mark.parametrize(("handler", "concurrency"), LOOPS.values(), ids=LOOPS)
def test_a_cancel_ends_a_job_that_waits_for_a_page(start_worker: Any, handler: str, concurrency: int) -> None:
    agent = start_worker(handler)
    agent.setup(concurrency=concurrency)
    goes_on(agent, 3)
    assert agent.next().kind == "kept"
    agent.cancel(attempt=2)
    end = agent.next()
    assert (end.kind, end.fields["error"]) == ("failed", "cancelled: asked")


def test_a_refusal_reaches_the_handler_with_its_reason(start_worker: Any) -> None:
    agent = start_worker("streams/reads_its_kept.py:handler")
    agent.setup()
    goes_on(agent, 1)
    about = {**agent.next().fields, "reason": "unreachable", "retryable": False}
    about.pop("first")
    answers(agent, Frame("fetch_failed", {**about, "error": "chunk 0 is not stored any more"}))
    end = agent.next()
    assert end.fields["error"] == "the kept chunks cannot be had: chunk 0 is not stored any more"


def test_a_page_that_comes_late_is_dropped(start_worker: Any) -> None:
    agent = start_worker("streams/reads_its_kept.py:handler")
    agent.setup()
    answers(agent, kept_page({**KEY, "n": 0}, [json.dumps(LARGE).encode()]))
    agent.run()
    assert json.loads(agent.next().body) == []
