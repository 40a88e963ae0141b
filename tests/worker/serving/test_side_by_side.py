"""Real worker processes with several jobs at once: on threads, and as tasks of one loop.

No job here knows a time: one waits for a word of another, and nobody would ever end if they ran one by one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from stoker.worker.frames import Frame, encode
from stoker.worker.serving import threads_loop
from stoker.worker.serving.channel import Channel
from stoker.worker.serving.slots import Slots

KINDS = ("slots/side_by_side.py:Handler", "slots/async_side_by_side.py:Handler")


def body(frame: Frame) -> Any:
    return json.loads(frame.body)


def run(agent: Any, job: str, **given: Any) -> None:
    agent.run(json.dumps(given).encode(), job=job)


@pytest.mark.parametrize("handler", KINDS)
def test_as_many_jobs_run_at_once_as_the_endpoint_allows(start_worker: Any, handler: str) -> None:
    agent = start_worker(handler)
    assert agent.setup(concurrency=3).fields["concurrency"] == 3
    run(agent, "a", wait="b is here", tell="a is done")
    run(agent, "c", wait="a is done")
    assert [agent.next().kind, agent.next().kind] == ["progress", "progress"]
    run(agent, "b", tell="b is here")
    ends = {frame.job: body(frame) for frame in (agent.next(), agent.next(), agent.next())}
    assert {job: (end["before"], end["after"], end["name"]) for job, end in ends.items()} == {
        job: ("setup", job, f"job {job}") for job in "abc"
    }


@pytest.mark.parametrize("handler", KINDS)
def test_the_context_of_a_job_is_not_that_of_the_next_one(start_worker: Any, handler: str) -> None:
    """The same thread may serve both."""
    agent = start_worker(handler)
    agent.setup(concurrency=2)
    for job in ("first", "second"):
        run(agent, job)
        assert body(agent.next())["before"] == "setup"


def test_a_job_that_comes_while_another_sends_does_not_begin_in_its_context(start_worker: Any) -> None:
    agent = start_worker("slots/async_side_by_side.py:Handler")
    agent.setup(concurrency=2)
    run(agent, "sends", emit=3_000_000)
    assert agent.next().kind == "chunk"
    run(agent, "comes")
    agent.send("took", job="sends", attempt=1, n=0)
    ends = {frame.job: body(frame)["before"] for frame in (agent.next(), agent.next())}
    assert ends == {"sends": "setup", "comes": "setup"}


@pytest.mark.parametrize("handler", KINDS)
@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt", "RecursionError", "GeneratorExit"])
def test_what_one_job_raises_does_not_touch_the_other(start_worker: Any, handler: str, error: str) -> None:
    agent = start_worker(handler)
    agent.setup(concurrency=2)
    run(agent, "stays", wait="the other is over")
    agent.next()
    run(agent, "fails", **{"raise": error})
    failed = agent.next()
    assert (failed.kind, failed.job) == ("failed", "fails")
    run(agent, "tells", tell="the other is over")
    assert {frame.job: frame.kind for frame in (agent.next(), agent.next())} == {
        "tells": "done",
        "stays": "done",
    }


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt", "ValueError"])
def test_what_a_task_of_a_job_raises_is_for_that_job(start_worker: Any, error: str) -> None:
    agent = start_worker("slots/async_side_by_side.py:Handler")
    agent.setup(concurrency=2)
    run(agent, "stays", wait="the other is over")
    agent.next()
    run(agent, "fails", task=error)
    failed = agent.next()
    assert (failed.kind, failed.job) == ("failed", "fails")
    assert "on purpose" in failed.fields["error"]
    run(agent, "tells", tell="the other is over")
    assert {agent.next().kind, agent.next().kind} == {"done"}


def test_a_cancel_ends_one_of_several_threads(start_worker: Any) -> None:
    agent = start_worker("cancelling/slow_until_cancelled.py:handler")
    agent.setup(concurrency=3)
    for job in ("a", "b", "c"):
        agent.run(job=job)
        assert agent.next().kind == "progress"
    for job in ("b", "c", "a"):
        agent.cancel(job=job, reason=f"not {job}")
        failed = agent.next()
        assert (failed.job, failed.fields["error"]) == (job, f"cancelled: not {job}")


def test_a_cancel_that_comes_with_its_run_keeps_a_thread_from_it(start_worker: Any) -> None:
    agent = start_worker("outputs/echo.py:handler")
    agent.setup(concurrency=2)
    key = {"job": "j", "attempt": 1}
    frames = [
        Frame("run", {**key, "scratch": str(agent.scratch)}, b"1"),
        Frame("cancel", {**key, "reason": "at once"}),
    ]
    agent.sock.sendall(b"".join(encode(frame)[0] for frame in frames))
    assert agent.next().fields["error"] == "cancelled: at once"


def test_generators_on_threads_keep_the_order_of_their_chunks(start_worker: Any) -> None:
    agent = start_worker("streams/generator.py:handler")
    agent.setup(concurrency=2)
    agent.run(b'{"count": 200}', job="a")
    agent.run(b'{"count": 200}', job="b")
    chunks: dict[str, list[int]] = {"a": [], "b": []}
    ends = 0
    while ends < 2:
        frame = agent.next()
        ends += frame.kind == "done"
        if frame.kind == "chunk":
            chunks[frame.job].append(frame.fields["n"])
    assert chunks == {"a": list(range(200)), "b": list(range(200))}


def test_a_cancel_ends_a_generator_on_a_thread(start_worker: Any) -> None:
    agent = start_worker("streams/endless_generator.py:handler")
    agent.setup(concurrency=2)
    agent.run()
    agent.next()
    agent.cancel()
    assert agent.until_end()[-1].fields["error"] == "cancelled: asked"


def test_each_thread_waits_for_its_own_chunk_to_be_taken(start_worker: Any) -> None:
    agent = start_worker("streams/emits_large.py:handler")
    agent.setup(concurrency=2)
    for job in ("a", "b"):
        agent.run(b'{"sizes": [3000000]}', job=job)
    assert {agent.next().job, agent.next().job} == {"a", "b"}
    agent.send("took", job="b", attempt=1, n=0)
    assert (agent.next().job, agent.is_silent()) == ("b", True)
    agent.send("took", job="a", attempt=1, n=0)
    assert agent.next().job == "a"


def test_a_stop_waits_for_every_thread(start_worker: Any) -> None:
    agent = start_worker("slots/side_by_side.py:Handler")
    agent.setup(concurrency=3)
    run(agent, "a", wait="go", tell="a is done")
    run(agent, "b", wait="a is done", tell="b is done")
    run(agent, "c", wait="b is done")
    for _ in range(3):
        agent.next()
    key = {"job": "c", "attempt": 1}
    agent.send("stop")
    agent.send("cancel", **key)  # it is heard, and this handler does not care
    agent.send("run", b"{}", job="late", attempt=1, scratch=str(agent.scratch))
    assert agent.is_silent()
    os.kill(agent.process.pid, 0)


def test_a_stopped_worker_leaves_with_its_last_thread(start_worker: Any) -> None:
    agent = start_worker("cancelling/slow_until_cancelled.py:handler")
    agent.setup(concurrency=2)
    for job in ("a", "b"):
        agent.run(job=job)
        agent.next()
    agent.send("stop")
    for job in ("a", "b"):
        agent.cancel(job=job)
        assert agent.next().job == job
    assert agent.wait() == 0


def test_an_idle_worker_with_threads_stops_at_once(start_worker: Any) -> None:
    agent = start_worker("outputs/echo.py:handler")
    agent.setup(concurrency=2)
    agent.run(b"1")
    agent.next()
    agent.send("stop")
    assert agent.wait() == 0
    assert agent.log.read_text() == ""


@pytest.mark.parametrize(
    "handler", ["outputs/echo.py", "cancelling/slow_until_cancelled.py", "streams/endless_generator.py"]
)
def test_threads_end_with_their_agent(start_worker: Any, handler: str) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup(concurrency=2)
    if handler != "outputs/echo.py":
        agent.run()
        agent.next()
    agent.hang_up()
    assert agent.wait() == -signal.SIGKILL


def test_sigterm_ends_threads_that_ignore_their_cancel(start_worker: Any) -> None:
    agent = start_worker("cancelling/stuck_in_c.py:handler")
    agent.setup(concurrency=2)
    agent.run()
    agent.next()
    agent.cancel()
    os.killpg(agent.process.pid, signal.SIGTERM)
    assert agent.wait() == -signal.SIGTERM


def test_one_at_a_time_needs_no_pool(start_worker: Any, tmp_path: Path) -> None:
    path = tmp_path / "looks_around.py"
    path.write_text(
        "import os, sys\n"
        "def handler(job):\n"
        "    pool = [m for m in sys.modules if m in ('concurrent.futures', 'stoker.worker.serving.slots')]\n"
        "    return [len(os.listdir('/proc/self/task')), pool]\n"
    )
    agent = start_worker(f"{path}:handler")
    assert agent.setup(concurrency=1).fields["concurrency"] == 1
    agent.run()
    assert body(agent.next()) == [1, []]


# ---- how many at once


CHOOSERS = ("slots/async_chooses_slots.py:handler", "slots/class_chooses_slots.py:Handler")


def news(agent: Any, *slots: Any) -> list[Any]:
    """What a job that chooses so leads to: the numbers told, and the kind of its end, in their order."""
    run(agent, "j", slots=slots)
    seen: list[Any] = []
    while not seen or seen[-1] not in ("done", "failed"):
        frame = agent.next()
        seen.append(frame.fields["n"] if frame.kind == "slots" else frame.kind)
    return seen


@pytest.mark.parametrize("handler", CHOOSERS)
def test_a_modifier_chooses_and_its_number_is_reported_before_the_slot_is_free(
    start_worker: Any, handler: str
) -> None:
    agent = start_worker(handler)
    assert agent.setup(concurrency=8).fields["concurrency"] == 3
    assert news(agent, 5) == [5, "done"]
    assert news(agent, 5) == ["done"]
    assert news(agent, 100) == [8, "done"]
    assert news(agent, 1) == [1, "done"]
    assert news(agent, "more") == [2, "done"]
    assert news(agent, 2) == [3, 2, "done"]


@pytest.mark.parametrize("handler", CHOOSERS)
def test_a_modifier_that_answers_nonsense_is_logged_once_and_changes_nothing(
    start_worker: Any, handler: str
) -> None:
    agent = start_worker(handler)
    agent.setup(concurrency=8)
    for nonsense in (None, "many", 0, -3, True, 2.5, "raise"):
        assert news(agent, nonsense) == ["done"]
        assert news(agent, nonsense) == ["done"]
    assert news(agent, 4) == [4, "done"]
    reported = [line for line in agent.log.read_text().splitlines() if line.startswith("this worker keeps")]
    assert reported[0] == (
        "this worker keeps taking 3 at once: its concurrency_modifier returned None, "
        "which is not a whole number from 1"
    )
    assert len(reported) == 7


def test_where_one_at_a_time_is_allowed_a_modifier_is_not_called(start_worker: Any) -> None:
    for handler in CHOOSERS:
        agent = start_worker(handler)
        assert agent.setup(concurrency=1).fields["concurrency"] == 1
        assert news(agent, 5) == ["done"]


def test_a_lower_number_lets_the_jobs_that_run_end(start_worker: Any, tmp_path: Path) -> None:
    path = tmp_path / "falls.py"
    path.write_text(
        "import asyncio\n"
        "from stoker import worker\n"
        "go = asyncio.Event()\n"
        "answers = [3, 3, 3, 1]\n"
        "@worker.handler(concurrency_modifier=lambda current: answers.pop(0) if answers else 1)\n"
        "async def handler(job):\n"
        "    if job.id == 'c':\n"
        "        go.set()\n"
        "    await go.wait()\n"
    )
    agent = start_worker(f"{path}:handler")
    assert agent.setup(concurrency=3).fields["concurrency"] == 3
    for job in ("a", "b", "c"):
        agent.run(job=job)
    slots, *ends = [agent.next() for _ in range(4)]
    assert (slots.kind, slots.fields["n"]) == ("slots", 1)
    assert {(frame.kind, frame.job) for frame in ends} == {("done", "a"), ("done", "b"), ("done", "c")}


@pytest.mark.parametrize("mode", ["", "async "])
def test_a_modifier_is_called_in_the_context_of_setup(start_worker: Any, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "looks_where.py"
    path.write_text(
        "from contextvars import ContextVar\n"
        "where = ContextVar('where')\n"
        "class Handler:\n"
        "    def setup(self, device):\n"
        "        where.set('setup')\n"
        f"    {mode}def run(self, job):\n"
        "        where.set(job.id)\n"
        "    def concurrency_modifier(self, current):\n"
        "        return 2 if where.get() == 'setup' else 1\n"
    )
    agent = start_worker(f"{path}:Handler")
    assert agent.setup(concurrency=2).fields["concurrency"] == 2
    agent.run(job="j")
    assert agent.next().kind == "done"


def test_an_error_of_the_runtime_itself_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that thread alone, of whose job nobody would ever hear."""

    def breaks(*_: Any, **__: Any) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(threads_loop, "run_attempt", breaks)
    ours, agents = socket.socketpair()
    with ours, agents:
        loop = threads_loop.ThreadsLoop(Channel(ours), print, Slots(2, None), aggregate=False)
        data, _ = encode(Frame("run", {"job": "a", "attempt": 1, "scratch": "/"}, b"{}"))
        agents.sendall(data)
        with pytest.raises(RuntimeError, match="a mistake of ours"):
            loop.serve()
        loop._pool.shutdown()  # of a worker this would be the end
        os.close(loop._ended)
