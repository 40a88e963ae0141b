"""An urgent job beside a long one on one slot, with real processes: it starts at the long one's next save,
and the long one goes on from there and ends as it would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.system.stack import Stack, queue_endpoint, running

ENDPOINT, LONG, SHORT = "counts", 300, 20


class Reader:
    """A poller of a job's stream."""

    def __init__(self, stack: Stack, job: str) -> None:
        self._stack, self._job = stack, job
        self.chunks: list[dict[str, Any]] = []
        self.status = ""

    def poll(self) -> None:
        answer = self._stack.http.get(f"/{ENDPOINT}/stream/{self._job}?wait=60000").json()
        self.chunks += [one["output"] for one in answer["stream"]]
        self.status = answer["status"]

    @property
    def lives(self) -> bool:
        return self.status in {"", "IN_QUEUE", "IN_PROGRESS"}


@pytest.mark.slow
def test_an_urgent_job_starts_beside_a_long_one_that_ends_with_the_same_output(tmp_path: Path) -> None:
    with running(tmp_path, queue_endpoint(ENDPOINT, "streams/counting.py")) as stack:
        long = stack.run(ENDPOINT, {"numbers": LONG})
        reader = Reader(stack, long)
        while reader.lives and not reader.chunks:
            reader.poll()
        urgent = stack.run(ENDPOINT, {"numbers": SHORT}, policy={"priority": "urgent"})
        assert stack.end_of(ENDPOINT, urgent)["output"] == {"numbers": list(range(SHORT))}
        assert stack.status(ENDPOINT, long)["status"] in {"IN_QUEUE", "IN_PROGRESS"}, "it gave way"
        while reader.lives:
            reader.poll()
        numbers = [chunk["number"] for chunk in reader.chunks]
        assert numbers == list(range(LONG)), "each number once, in order"
        assert {chunk["attempt"] for chunk in reader.chunks} == {1, 2}
        end = stack.end_of(ENDPOINT, long)
        assert end["output"] == {"numbers": numbers}, "the same as without a break"
        assert "retries" not in end, "a yield is not counted"
