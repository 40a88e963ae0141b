"""A job's lines at a reader while they are printed, through a real control, agent and worker."""

from __future__ import annotations

import statistics
import time
from itertools import chain
from pathlib import Path

from stoker.client import Client
from tests.system.stack import START_S, Stack, queue_endpoint, running, until

ENDPOINT = queue_endpoint("prints", "printing/prints_as_told.py", concurrency=1)


def client(stack: Stack) -> Client:
    return Client(stack.facts["http"], stack.key)


def test_lines_arrive_as_they_are_printed_and_stay_when_the_job_has_ended(tmp_path: Path) -> None:
    with running(tmp_path, ENDPOINT) as stack, client(stack) as stoker:
        stack.runsync("prints", {"lines": 1})
        job = stack.run("prints", {"lines": 100, "pause": 0.005})
        waits, seen = [], []
        for event in stoker.logs("prints", job, follow=True):
            if event.kind == "log":
                printed, _, text = event.value["line"].partition(" ")
                waits.append(time.time() - float(printed))
                assert -0.01 < event.value["printedAt"] / 1000 - float(printed) < 5
                seen.append((event.id, text))
        assert seen == [(f"1-{n}", f"line {n}") for n in range(100)]
        assert event.value == {"id": job, "status": "COMPLETED"}
        late = [e.id for e in stoker.logs("prints", job, follow=True, after="1-97")]
        assert late[:2] == ["1-98", "1-99"]
        kept = stoker.logs("prints", job)
        assert len(kept[0].lines) == len(kept[0].printed_at) == 100
        assert abs(kept[0].printed_at[0] / 1000 - float(kept[0].lines[0].split()[0])) < 5
        _flooded(stack, stoker)
    # The first lines may have been printed before the reader came.
    quantiles = statistics.quantiles(waits[20:], n=100)
    print(f"\nprinted to reader: p50 {quantiles[49] * 1e3:.2f} ms, p99 {quantiles[98] * 1e3:.2f} ms")


def _flooded(stack: Stack, stoker: Client) -> None:
    """More than any buffer holds, and nobody reads on before the job is over, which is not held up: every
    line is either there or counted."""
    job = stack.run("prints", {"lines": 2, "flood": 200_000})
    events = stoker.logs("prints", job, follow=True)
    first = next(events)
    until(lambda: stack.status("prints", job)["status"] == "COMPLETED", START_S, "a job that is not held up")
    numbers, lost = [], 0
    for event in chain([first], events):
        if event.kind == "log":
            numbers.append(int(event.id.partition("-")[2]))
        elif event.kind == "skipped":
            lost += event.value["lines"]
    assert event.value["status"] == "COMPLETED"
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 200_001
    assert len(numbers) + lost == 200_002
    assert lost > 0
