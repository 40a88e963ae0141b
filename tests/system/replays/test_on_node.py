"""Replays on a node of the platform, with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.system.replays.replaying import replay
from tests.system.replays.test_replays import KEEPS, case, failed, new_key
from tests.system.stack import Stack, queue_endpoint, running

PICTURES = queue_endpoint("pictures", "failing/pictures.py", keepCases=True, maxAttempts=1)
NAMES_KEPT = queue_endpoint("kept", "failing/names_its_kept.py", keepCases=True, maxAttempts=1)


def node_of(stack: Stack) -> dict[str, Any]:
    (node,) = stack.http.get(f"{stack.facts['http']}/v1/nodes").json()
    return dict(node)


def test_a_failed_job_fails_again_on_the_node_and_costs_nothing(tmp_path: Path) -> None:
    with running(tmp_path, KEEPS) as stack:
        job = failed(stack, fault="after_a_save")
        node = node_of(stack)
        status, found, said = replay(stack, job, "--on", node["name"])
        assert (status, found["same"], found["ended"]) == (0, True, "raised"), (found, said)
        assert found["reason"].startswith("builtins.KeyError at seeded_faults.py in after_a_save, line ")
        assert found["differences"] == []

        started = said.partition("replay ")[2].split()[0]
        endpoint = said.partition("at endpoint ")[2].split()[0]
        record = stack.http.get(f"/{endpoint}/status/{started}").json()
        assert (record["replayOf"], record["replayedOn"]) == (job, node["id"])
        assert "retries" not in record
        assert case(stack, started, endpoint=endpoint).json()["progress"] == {"part": 3, "from": 3}
        bill = stack.http.get(f"{stack.facts['http']}/v1/billing/endpoints").json()
        assert endpoint not in str([one for one in bill if one.get("amount")])

        status, found, said = replay(stack, job, "--on", node["id"], "--from-start", "--until", "2")
        assert (status, found["ended"], found["error"]) == (0, "stopped", "after report 2"), (found, said)


def test_a_replay_on_the_node_reads_the_chunks_that_its_save_covers(tmp_path: Path) -> None:
    with running(tmp_path, NAMES_KEPT) as stack:
        job = stack.run("kept", {})
        assert stack.end_of("kept", job)["error"].endswith("ValueError: found []")
        _, found, said = replay(stack, job, "--on", node_of(stack)["name"])
        assert found["error"].endswith("ValueError: found ['part 0']"), (found, said)


@pytest.mark.slow
def test_a_replay_on_a_node_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with running(tmp_path, KEEPS) as stack:
        job = failed(stack, fault="missing_key")
        node = node_of(stack)
        status, found, said = replay(stack, job, "--on", "nowhere")
        assert (status, found) == (1, {})
        assert f"no node has the id or the name 'nowhere'; the nodes are {node['name']}" in said

        http = stack.facts["http"]
        assert stack.http.post(f"{http}/v1/nodes/{node['id']}/drain").status_code == 200
        status, _, said = replay(stack, job, "--on", node["name"])
        assert status == 1
        assert "is drained: `stoker node resume` allows work there again" in said
        stack.http.post(f"{http}/v1/nodes/{node['id']}/resume")

        path = f"/faults/replay/{job}?node={node['id']}"
        for access, answered in (
            ({"cases": True}, 401),
            ({"endpoints": {"faults": "write"}}, 403),
            ({"endpoints": {"faults": "write"}, "cases": True}, 200),
        ):
            key = {"Authorization": f"Bearer {new_key(stack, **access)}"}
            answer = stack.http.post(path, headers=key)
            assert answer.status_code == answered, answer.text
        started = answer.json()
        record = stack.http.get(f"/{started['endpoint']}/status/{started['id']}", headers=key)
        assert record.status_code == 200
        other = {"Authorization": f"Bearer {new_key(stack, endpoints={'faults': 'none'})}"}
        record = stack.http.get(f"/{started['endpoint']}/status/{started['id']}", headers=other)
        assert record.status_code == 401


@pytest.mark.parametrize("on_node", [False, True])
@pytest.mark.slow
def test_a_completed_job_is_compared_with_its_replay(tmp_path: Path, on_node: bool) -> None:
    with running(tmp_path, PICTURES) as stack:
        where = ("--on", node_of(stack)["name"]) if on_node else ("--cpu",)
        for differs in (False, True):
            job = stack.run("pictures", {"differs": differs})
            assert stack.end_of("pictures", job)["status"] == "COMPLETED"
            status, found, said = replay(stack, job, *where, "--compare", "job")
            assert (status, found["same"]) == (int(differs), not differs), (found, said)
            if differs:
                assert "differ first at pixel 1, 0; the largest difference is " in found["reason"]
            else:
                assert found["reason"] == "both returned an output; what the job gave is equal"
