"""Long jobs that do not save avoid spot hosts, where another node has room; no job waits for one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.placement import NodeRoom
from stoker.control.scheduling.cluster_state import NodeLoad, offer
from stoker.control.scheduling.spots import LONG_S, MAY_S, is_spot, others, why_avoided
from stoker.wire.messages import Save
from tests.control.plane_world import endpoint, one, story, world
from tests.control.scheduling.test_cluster_state import free, rooms

SPOT = {"label.spot": "yes"}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, False),
        ({"label.spot": "no"}, False),
        ({"label.spot": "False"}, False),
        ({"label.spot": "aws"}, True),
        ({"label.spot": ""}, True),
    ],
)
def test_a_spot_host_has_the_label(facts: dict[str, str], expected: bool) -> None:
    assert is_spot(facts) is expected
    assert others([NodeRoom("n", (), {}, facts=facts)]) == [] or not expected


@pytest.mark.parametrize(
    ("run_s", "timeout_s", "saves", "why"),
    [
        (LONG_S + 1, 600.0, False, "is not a spot host: jobs that ran for 301 s saved nothing"),
        (LONG_S + 1, 600.0, True, ""),
        (LONG_S, MAY_S, False, ""),
        (None, MAY_S, False, "is not a spot host: jobs that may run for 3600 s have saved nothing yet"),
        (None, MAY_S, True, ""),
        (None, 600.0, False, ""),
    ],
)
def test_which_jobs_avoid_them(run_s: float | None, timeout_s: float, saves: bool, why: str) -> None:
    assert why_avoided(run_s, timeout_s, saves=saves) == why


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), min_size=1, max_size=6), st.integers(1, 9)
)
def test_a_preference_takes_no_room_away(about: list[tuple[str, int]], most: int) -> None:
    workers = [free(f"w{n}", slots, node=node) for n, (node, slots) in enumerate(about)]
    loads = {"a": NodeLoad(), "b": NodeLoad()}
    plain = offer(workers, loads, rooms(workers), most)
    spotted = offer(workers, loads, rooms(workers), most, 0, ["a"])
    assert sum(count for _, count in plain) == sum(count for _, count in spotted)
    nodes = [found.node for found, _ in spotted]
    assert nodes == sorted(nodes, reverse=True), "those on the spot host come last"


async def connected(w: Any, tasks: Any, **facts: dict[str, str]) -> dict[str, Any]:
    agents = {name: w.agent(node=name) for name in facts}
    for name, agent in agents.items():
        await agent.connect(tasks, facts=facts[name])
    return agents


@story
async def test_a_worker_of_long_jobs_goes_to_another_node_while_one_has_room() -> None:
    long = endpoint("long", workers_min=1, execution_timeout_ms=7_200_000)
    async with world(long) as (w, tasks):
        agents = await connected(w, tasks, a_spot=SPOT, b_steady={})
        await agents["b_steady"].ready_workers()
        assert agents["a_spot"].specs == {}


@story
async def test_a_worker_whose_jobs_save_or_that_has_no_other_node_goes_to_the_spot_host() -> None:
    long = endpoint("long", workers_min=1, execution_timeout_ms=7_200_000)
    async with world(long) as (w, tasks):
        alone = w.agent(node="a_spot")
        await alone.connect(tasks, facts=SPOT)
        await alone.ready_workers()
        job = await w.plane.commands.submit(w.plane.endpoints.find("default", "long"), one(), sync=False)
        assign = await alone.assigned()
        await alone.report(Save(job.id, 1, 0, 0, b"state"))
        await asyncio.sleep(1)
        assert w.plane.cluster.saving == {"long": 1}
        await alone.completes(assign)
