"""The stock SDKs' management functions against a plane over HTTP whose node says what a node would.

The same functions with a real engine: tests/agent/workers/containers/pods/test_stock_management.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from stoker.control.http.server.server import serve_http
from stoker.wire.messages import PodPhase, PodSpec
from tests.conformance.management_calls import CPU_POD, FUNCTIONS, NOT_SERVED, Management, documented, table
from tests.conformance.stock_client import installed, python_client
from tests.control.http.management.managed import Managed
from tests.control.http.management.pods.pod_world import IMAGE, joined
from tests.control.scripted_agent import ScriptedAgent

PATIENCE_S = 100


async def _obeys(agent: ScriptedAgent) -> None:
    """Reports each pod as its node would, as soon as it is told of it."""
    phases: dict[str, PodPhase] = {"RUNNING": "running", "EXITED": "exited", "TERMINATED": "gone"}
    told: dict[str, PodSpec] = {}
    while True:
        for pod, spec in list(agent.pods.items()):
            if told.get(pod) != spec:
                told[pod] = spec
                await agent.report_pod(spec, phases[spec.wish])
        await agent.listen(0.05)


def _polled(found: Callable[[], bool]) -> None:
    """Each question of the SDK is a request of its own, so this turns as fast as they are answered."""
    end = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < end


def _used(folder: Path, api: Managed, port: int, *options: str) -> Management:
    with python_client(
        "runpod_management.py", folder, f"http://127.0.0.1:{port}", api.world.key, *options
    ) as client:
        made = Management(client)
        made.resources(IMAGE)
        made.pods(IMAGE, _polled, **CPU_POD)
        return made


async def test_each_management_function_of_both_sdks_works_or_raises_a_sentence(tmp_path: Path) -> None:
    newest = installed("newer") / "2.0.0rc2"
    async with (
        joined("node-1") as (api, (agent,), tasks),
        await serve_http(api.app, "127.0.0.1", 0) as http,
    ):
        obeys = tasks.create_task(_obeys(agent))
        old = await asyncio.to_thread(_used, tmp_path / "older", api, http.port)
        new = await asyncio.to_thread(_used, tmp_path / "newer", api, http.port, str(newest))
        obeys.cancel()
    for one in (old, new):
        assert one.worked | one.refused.keys() == set(FUNCTIONS)
        assert not one.worked & one.refused.keys()
        for function, said in one.refused.items():
            assert NOT_SERVED in said, function
    print(table(old, new))
    assert old.worked == set()
    assert new.refused.keys() == {"get_user", "update_user_settings", "update_container_registry_auth"}
    assert documented(table(old, new)), f"docs/management.md must have this table:\n{table(old, new)}"
