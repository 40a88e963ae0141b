"""Hosted models on a fleet of two hosts: as many workers as fit, and several pipelines at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.system.stack import GONE_S, START_S, Stack, until

SMALL = {"prompt": "a red boat", "width": 256, "height": 256, "num_inference_steps": 2}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path, hosted=("text-to-image",))
    made.pipelines = "flux-tiny,flux-mini"
    try:
        made.start()
        command = ["agent", "--control", made.facts["grpc"], "--data-dir", str(tmp_path / "other")]
        other, _ = made._start([*command, "--name", "other"], "other", {})
        try:
            yield made
        finally:
            other.send_signal(signal.SIGTERM)
            other.wait(GONE_S)
    finally:
        made.stop()


def workers(stack: Stack) -> dict[str, int]:
    return dict(stack.http.get("/text-to-image/health").json()["workers"])


@pytest.mark.slow
def test_each_pipeline_has_an_endpoint_and_hosts_have_as_many_workers_as_fit(stack: Stack) -> None:
    drawn = {
        name: stack.runsync(name, SMALL)["output"]["pipeline"]
        for name in ("text-to-image", "flux-tiny", "flux-mini")
    }
    assert drawn == {"text-to-image": "flux-tiny", "flux-tiny": "flux-tiny", "flux-mini": "flux-mini"}
    answer = httpx2.patch(
        f"{stack.facts['http']}/v1/endpoints/text-to-image",
        headers={"Authorization": f"Bearer {stack.key}"},
        json={"scalerType": "REQUEST_COUNT", "scalerValue": 1},
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    jobs = [stack.run("text-to-image", SMALL | {"num_inference_steps": 50}) for _ in range(8)]

    def has_two() -> bool:
        there = workers(stack)
        assert there["throttled"] == 0, "no more are wanted than there are hosts"
        return there["ready"] + there["running"] == 2

    until(has_two, START_S, "a worker on each host", lambda: workers(stack))
    assert all(stack.end_of("text-to-image", job)["status"] == "COMPLETED" for job in jobs)
