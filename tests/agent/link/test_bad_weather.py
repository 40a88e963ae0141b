"""Random days of one node: cuts, crashes, cancels, an object store that comes and goes. Every Assign ends."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

from stoker.testing.fake_spawner import Start
from stoker.wire.messages import Chunk, Outcome, Refused, Released, Uploading

SCRIPTS = [
    {"output": 1},
    {"run_s": 3, "progress": [1, 2, 3], "output": 2},
    {"run_s": 2, "chunks": ["a", "b"]},
    {"run_s": 2, "chunks": ["a", {"characters": 1_200_000}, "b", {"characters": 1_200_000}], "output": 3},
    {"chunks": [{"characters": 1_200_000}] * 12, "error": "after its chunks"},
    {"run_s": 1, "chunks": [{"characters": 1_200_000}, "a"], "exit": -9},
    {"run_s": 1, "exit": -11},
    {"run_s": 90},
    {"run_s": 300, "ignore_cancel": True},
    {"run_s": 300, "ignore_cancel": True, "ignore_term": True},
    {"error": "bad"},
    {"files": [{"name": "a", "content": "x"}], "output": {"$file": 0}},
    {"run_s": 5, "files": [{"name": "b"}], "output": {"$file": 7}},
]


def note_arrivals(host):
    host.arrived, take = set(), host.agent.attempts.assign

    def noted(assign):
        host.arrived.add((assign.job, assign.attempt))
        take(assign)

    host.agent.attempts.assign = noted


async def day(host, rng, a_worker, a_job):
    """Returns what was assigned."""
    control = host.control
    await control.ready(a_worker("w1", concurrency=2), a_worker("w2", endpoint="e2"))
    assigned = []
    for n in range(40):
        await asyncio.sleep(rng.choice([0.0, 0.1, 1.0, 7.0]))
        match rng.choice(["job"] * 6 + ["cancel", "cut", "outage", "crash", "store", "acks", "sleep"]):
            case "job" if control.stream is not None:
                script = json.dumps(rng.choice(SCRIPTS)).encode()
                on = rng.choice(["w1", "w1", "w2"])
                limit = {"execution_timeout_ms": 20_000, "ttl_s": rng.choice([30.0, 300.0])}
                assigned.append((f"j{n}", 1))
                await control.assign(a_job(f"j{n}", script, on=on, **limit))
            case "cancel" if assigned and control.stream is not None:
                await control.cancel(*rng.choice(assigned))
            case "cut" if control.stream is not None:
                control.stream.cut()
            case "outage":
                control.up = not control.up
                if control.stream is not None and not control.up:
                    control.stream.cut()
            case "crash" if host.spawner.processes:
                rng.choice(host.spawner.processes).exit(-9)
            case "store":
                host.objects.down = not host.objects.down
            case "acks":
                control.acks = not control.acks
            case "sleep":
                host.asleep += rng.choice([1.0, 100.0])
    return assigned


@pytest.mark.parametrize("seed", range(40))
def test_every_assign_that_arrives_ends_once(simulated, a_host, a_worker, a_job, seed):
    async def story():
        rng = Random(seed)
        host = a_host({"e2": Start(ready_s=2.0, ignore_term=bool(seed % 2))})
        note_arrivals(host)
        running = asyncio.create_task(host.agent.run())
        assigned = await day(host, rng, a_worker, a_job)
        host.control.up = host.control.acks = True
        host.objects.down = False
        if host.control.stream is not None:
            host.control.stream.cut()
        await asyncio.sleep(400)
        check(host, assigned)
        host.agent.stop()
        await running
        host.check_clean()

    simulated.run(simulated.VirtualLoop(seed), story())


def check(host, assigned):
    control = host.control
    assert host.agent.reports.empty
    assert host.agent.attempts._attempts == {}
    for name, attempt in assigned:
        ends = control.about(Outcome, name, attempt) + control.about(Refused, name, attempt)
        # an Assign that was cut off on its way is the only one without an end
        assert len(ends) == ((name, attempt) in host.arrived)
        # the chunks that were told are the first ones, and of a success all of them
        numbers = sorted({chunk.n for chunk in control.about(Chunk, name, attempt)})
        assert numbers == list(range(len(numbers)))
        if ends and isinstance(ends[-1], Outcome) and ends[-1].output == b"3":
            assert len(numbers) == 4
        if control.about(Uploading, name, attempt):
            assert control.about(Released, name, attempt)
    assert {worker.state for worker in host.agent.workers.held()} == {"ready"}
