"""Real worker processes whose jobs are asked to yield, in each of the three loops."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.worker.frames import Frame, encode

LOOPS = {
    "one at a time": ("cancelling/saves_until_asked.py:handler", 1),
    "on threads": ("cancelling/saves_until_asked.py:handler", 2),
    "on a loop": ("cancelling/async_saves_until_asked.py:handler", 2),
}


@pytest.mark.parametrize(("handler", "concurrency"), LOOPS.values(), ids=LOOPS)
def test_a_job_that_is_asked_saves_and_ends_and_the_next_one_runs(
    start_worker: Any, handler: str, concurrency: int
) -> None:
    agent = start_worker(handler)
    agent.setup(concurrency=concurrency)
    for job in ("a", "b"):
        agent.run(job=job)
        assert [agent.next().kind, agent.next().kind] == ["save", "progress"]
        agent.send("yield", job="another", attempt=1, reason="not this one")
        agent.send("yield", job=job, attempt=1, reason="the host leaves")
        save, end = agent.next(), agent.next()
        assert (save.kind, save.job, save.fields["n"]) == ("save", job, 1)
        assert (end.kind, end.job, end.fields["yielded"], end.fields["error"]) == (
            "failed",
            job,
            True,
            "yielded: the host leaves",
        )


def test_a_request_that_comes_with_its_run_ends_the_job_at_its_first_save(start_worker: Any) -> None:
    agent = start_worker("cancelling/saves_until_asked.py:handler")
    agent.setup()
    key = {"job": "j", "attempt": 1}
    frames = [
        Frame("run", {**key, "scratch": str(agent.scratch)}, b"1"),
        Frame("yield", {**key, "reason": "at once"}),
    ]
    agent.sock.sendall(b"".join(encode(frame)[0] for frame in frames))
    assert [agent.next().kind, agent.next().fields["yielded"]] == ["save", True]
