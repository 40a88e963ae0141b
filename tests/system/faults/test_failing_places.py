"""A worker that cannot start on one host starts on another, without anybody's help, on CPUs and on GPUs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx2
import pytest

from tests.nvml_stand_in import on_a_host
from tests.system.stack import SERVERS, Stack, queue_endpoint, running, until


def nodes(stack: Stack) -> dict[str, dict[str, object]]:
    found = httpx2.get(
        f"{stack.facts['http']}/v1/nodes", headers={"Authorization": f"Bearer {stack.key}"}, trust_env=False
    ).json()
    return {one["name"]: one for one in found}


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [False, True], ids=["CPU", "GPU"])
def test_its_job_runs_on_the_host_where_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: bool
) -> None:
    """The first host has room for more workers all the while, also while it has a free GPU."""
    if gpus:
        on_a_host(tmp_path, monkeypatch, "two")
    picky = queue_endpoint(
        "picky", "starting/fails_on_one_node.py", workersMin=0, computeType="GPU" if gpus else "CPU"
    )
    with running(tmp_path, picky) as stack:
        job = stack.run("picky", {})
        waits = lambda: stack.status("picky", job).get("reason", "")  # noqa: E731
        until(lambda: "the driver of this host is missing" in waits(), 100, "the reason", waits)
        with stack.another_agent("second"), stack.another_agent("third"):
            assert stack.end_of("picky", job)["output"] == "well"
            [avoided] = [one.get("avoidedFor") for name, one in nodes(stack).items() if name not in OTHERS]
            assert isinstance(avoided, list)
            assert avoided[0]["endpointId"] == "picky"
            assert "the driver of this host is missing" in avoided[0]["reason"]
            assert not any("avoidedFor" in nodes(stack)[name] for name in OTHERS)
            assert "is withdrawn from node" in stack.log("control")


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [False, True], ids=["CPU", "GPU"])
def test_callers_do_not_wait_for_a_server_that_became_ill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: bool
) -> None:
    """The endpoint may have three workers, and has one: it is ill from then on, and does not count."""
    if gpus:
        on_a_host(tmp_path, monkeypatch, "two")
    served = queue_endpoint(
        "app",
        "",
        imageName=f"local:{SERVERS}",
        dockerStartCmd=[sys.executable, "app.py"],
        type="LOAD_BALANCER",
        computeType="GPU" if gpus else "CPU",
        workersMax=3,
    )
    with (
        running(tmp_path, served + f"[endpoints.env]\nSTATE = {json.dumps(str(tmp_path))}\n") as stack,
        stack.another_agent("second"),
    ):
        first = stack.http.get("/app/echo/first").json()["worker"]
        (tmp_path / f"ill-{first}").touch()

        def another_answers() -> bool:
            answer = stack.http.get("/app/echo/again")
            assert answer.status_code == 200, answer.text
            return bool(answer.json()["worker"] != first)

        until(another_answers, 60, "an answer of another worker")
        assert "is withdrawn from node" in stack.log("control")


OTHERS = ("second", "third")
