"""The stock SDK 2 manages a pod on a real engine, through real processes: what it thinks gone is gone."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.agent.workers.containers.pods.test_pods_over_rest import Pods, left, stack
from tests.conformance.management_calls import CPU_POD, Management
from tests.conformance.stock_client import installed, python_client
from tests.container_engine_here import IMAGE
from tests.system.stack import until

__all__ = ["stack"]
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("address", ["docker"], indirect=True)]

SLEEPS = (
    "python -c 'import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); signal.pause()'"
)


def test_a_pods_log_is_streamed_as_its_container_prints(stack: Pods) -> None:
    program = "import time\nfor n in range(600):\n    print('line', n, flush=True)\n    time.sleep(1)"
    body = {"name": "prints", "image": IMAGE, "cpu": {"id": "cpu3c", "vcpuCount": 2}}
    url = stack.facts["http"] + "/v2/pods"
    made = stack.http.post(url, json=body | {"args": shlex.join(["python", "-c", program])})
    assert made.status_code == 201, made.text
    pod = made.json()["id"]
    stack.until_it_reads(pod, "RUNNING", "RUNNING")
    told = []
    with stack.http.stream("GET", f"{url}/{pod}/logs", timeout=120) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            if line.startswith("data:"):
                told.append(json.loads(line.removeprefix("data:"))["line"])
            if len(told) == 5:
                break
    assert told == [f"line {n}" for n in range(5)]
    assert stack.http.delete(f"{url}/{pod}").status_code == 204
    until(lambda: left(stack.address) == [], 60, "an engine with nothing left")


def test_a_pods_life_by_the_stock_sdk(stack: Pods, tmp_path: Path) -> None:
    newest = str(installed("newer") / "2.0.0rc2")
    with python_client(
        "runpod_management.py", tmp_path / "client", stack.facts["http"], stack.key, newest
    ) as client:
        sdk = Management(client)
        sdk.pods(
            IMAGE,
            lambda found: until(found, 120, f"a pod as it was asked for; {sdk.refused}"),
            **CPU_POD,
            docker_args=SLEEPS,
            env={"WORD": "one"},
        )
    assert sdk.refused == {}
    until(lambda: left(stack.address) == [], 60, "an engine with nothing left")
