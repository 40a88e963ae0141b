"""A worker that cannot start on one host starts on another, without anybody's help."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx2
import pytest

from tests.system.stack import GONE_S, Stack, queue_endpoint, running, until

ENDPOINT = queue_endpoint("picky", "starting/fails_on_one_node.py", workersMin=0)


def nodes(stack: Stack) -> dict[str, dict[str, object]]:
    found = httpx2.get(
        f"{stack.facts['http']}/v1/nodes", headers={"Authorization": f"Bearer {stack.key}"}, trust_env=False
    ).json()
    return {one["name"]: one for one in found}


@pytest.mark.slow
def test_its_job_runs_on_the_host_where_it_starts(tmp_path: Path) -> None:
    with running(tmp_path, ENDPOINT) as stack:
        job = stack.run("picky", {})
        waits = lambda: stack.status("picky", job).get("reason", "")  # noqa: E731
        until(lambda: "the driver of this host is missing" in waits(), 100, "the reason", waits)
        command = ["agent", "--control", stack.facts["grpc"], "--data-dir", str(tmp_path / "other")]
        other, _ = stack._start([*command, "--name", "other"], "other", {})
        try:
            assert stack.end_of("picky", job)["output"] == "well"
            [avoided] = [one["avoidedFor"] for one in nodes(stack).values() if one["name"] != "other"]
            assert avoided[0]["endpointId"] == "picky"
            assert "the driver of this host is missing" in avoided[0]["reason"]
            assert "avoidedFor" not in nodes(stack)["other"]
            assert "is withdrawn from node" in stack.log("control")
        finally:
            other.send_signal(signal.SIGTERM)
            other.wait(GONE_S)
