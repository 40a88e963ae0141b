"""The stock SDK 2 manages a pod on a real engine, through real processes: what it thinks gone is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from docker import APIClient

from tests.agent.workers.containers.pods.test_pods_over_rest import Pods, stack
from tests.conformance.management_calls import CPU_POD, Management
from tests.conformance.stock_client import installed, python_client
from tests.container_engine_here import IMAGE
from tests.system.stack import until

__all__ = ["stack"]
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("address", ["docker"], indirect=True)]

SLEEPS = (
    "python -c 'import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); signal.pause()'"
)


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
    engine = APIClient(stack.address)
    try:
        until(lambda: engine.containers(all=True) == [], 60, "an engine with nothing left")
    finally:
        engine.close()
