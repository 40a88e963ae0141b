"""The rules of replays on a node: which node is meant, what is made, and refusals."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.jobs.replay_rules import (
    Candidate,
    Wish,
    chosen,
    one_too_many,
    refusal,
    replay_endpoint,
    unknown,
    with_seed,
)
from stoker.control.rules.limits import REPLAYS_MOST
from stoker.control.rules.types import Endpoint, EndpointVersion, Replay
from stoker.wire.messages import Price

IDS = st.sampled_from(["a", "b", "c", "gpu-1"])
NODES = st.lists(
    st.builds(Candidate, IDS, st.sampled_from(["gpu-1", "gpu-2", ""])), unique_by=lambda one: one.id
)


@given(NODES, IDS)
def test_an_id_goes_before_a_name_and_a_name_is_to_be_of_one_node(
    nodes: list[Candidate], wanted: str
) -> None:
    found = chosen(nodes, wanted)
    named = [node for node in nodes if node.name == wanted]
    if any(node.id == wanted for node in nodes):
        assert found is not None
        assert found.id == wanted
    else:
        assert found == (named[0] if len(named) == 1 else None)
    if found is None:
        assert all(node.id in unknown(nodes, wanted) for node in named)


def test_a_node_that_is_not_there_is_named_beside_those_that_are() -> None:
    nodes = [Candidate("n2", "b"), Candidate("n1", "a"), Candidate("n3", "")]
    assert unknown(nodes, "x") == "no node has the id or the name 'x'; the nodes are a, b, n3"
    assert unknown([], "x") == "there is no node"
    twins = [Candidate("n1", "a"), Candidate("n2", "a")]
    assert unknown(twins, "a") == "several nodes have the name 'a': name one by its id, n1 or n2"


def test_what_is_not_known_or_cannot_be_stopped_is_refused() -> None:
    assert "is not stored" in refusal(None, Wish("n"))
    program = EndpointVersion("/h", kind="protocol")
    assert refusal(program, Wish("n")) == ""
    assert "stopAfter is for Python handlers" in refusal(program, Wish("n", stop_after=1))
    assert refusal(EndpointVersion("/h.py:handler"), Wish("n", stop_after=1)) == ""


def test_its_endpoint_runs_the_same_for_nothing_and_once() -> None:
    run = EndpointVersion(
        "/h.py:handler", prices=(Price("pixel", 5),), schema={"type": "object"}, env={"A": "b"}
    )
    of = Endpoint("faults", "acme", "faults", 7, run, workers_max=9, max_attempts=5, handler_retries=3)
    replay = Replay("job-1", "faults", "node-1", 3)
    made = replay_endpoint("new", of, run, replay, "gpu-1", 9_000)
    assert (made.account, made.name) == ("acme", "replay of job-1 on gpu-1")
    assert (made.run.handler, made.run.env, made.run.prices, made.run.schema) == (
        run.handler,
        run.env,
        (),
        None,
    )
    assert (made.workers_max, made.max_attempts, made.handler_retries) == (1, 1, 0)
    assert (made.execution_timeout_ms, made.keep_cases, made.temporary) == (9_000, True, True)
    assert (made.replay, made.rights) == (replay, "faults")
    assert (of.replay, of.rights) == (None, "faults")


def a_replay(new: str, of: str) -> Endpoint:
    run, replay = EndpointVersion("/h"), Replay("j", of, "n")
    return replay_endpoint(new, Endpoint(of, "acme", of, 1, run), run, replay, "gpu-1", 9_000)


@given(st.lists(st.sampled_from(["faults", "other"]), max_size=2 * REPLAYS_MOST))
def test_the_replays_of_one_endpoints_jobs_are_counted(of: list[str]) -> None:
    others = [a_replay(f"r{n}", one) for n, one in enumerate(of)]
    others.append(Endpoint("faults", "acme", "faults", 1, EndpointVersion("/h")))
    found = one_too_many(a_replay("new", "faults"), others)
    assert (found is not None) == (of.count("faults") >= REPLAYS_MOST)
    if found is not None:
        assert (found.status, found.limit, found.unit) == (429, REPLAYS_MOST, "replays")
        assert "jobs of endpoint faults have 50 replays, and may have no more at once" in str(found)


SEEDS = st.dictionaries(st.sampled_from(["seed", "x"]), st.none() | st.integers())


@given(st.none() | SEEDS | st.text())
def test_a_seed_is_put_where_there_is_none(value: object) -> None:
    text = json.dumps(value, indent=1).encode()
    found = with_seed(text, 5)
    if isinstance(value, dict) and value.get("seed") is None:
        assert json.loads(found) == {**value, "seed": 5}
    else:
        assert found is text
