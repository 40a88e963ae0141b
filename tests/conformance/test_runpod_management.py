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


APP = """
import runpod

app = runpod.App("hello")

@app.queue(name="greet", cpu="cpu3c-2-4")
def greet(name):
    return name

@runpod.local_entrypoint
def main():
    print(greet("me"))
"""


def _at_the_terminal(folder: Path, api: Managed, port: int, newest: str) -> None:
    url, key = f"http://127.0.0.1:{port}", api.world.key
    with python_client("runpod_management.py", folder, url, key, newest) as client:

        def rp(*arguments: str) -> tuple[int, str]:
            ended = client.ask("rp", arguments=arguments)
            return ended["exit"], ended["said"] + ended["why"]

        made = client.ask(
            "call", function="create_pod", given={"name": "box", "image_name": IMAGE, **CPU_POD}
        )
        status, said = rp("pod", "list")
        assert (status, made["id"] in said, "box" in said) == (0, True, True), said
        status, said = rp("logs", made["id"])
        assert (status, "status=404" in said) == (1, True), said
        status, said = rp("registry", "add", "mine", "--username", "u", "--password", "p")
        assert status == 0, said
        status, said = rp("registry", "list")
        assert (status, "mine" in said) == (0, True), said
        client.ask("call", function="terminate_pod", given={"pod_id": made["id"]})
        (folder / "app.py").write_text(APP)
        status, said = rp("flash", "dev", "--once", "app.py")
        assert status != 0
        assert "GraphQL is not served here" in said, said
        left = client.ask("call", function="get_endpoints", given={})
        assert [one["id"] for one in left] == ["echo"]


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


async def test_the_command_line_of_the_sdk_manages_pods_and_registries(tmp_path: Path) -> None:
    newest = installed("newer") / "2.0.0rc2"
    async with (
        joined("node-1") as (api, (agent,), tasks),
        await serve_http(api.app, "127.0.0.1", 0) as http,
    ):
        obeys = tasks.create_task(_obeys(agent))
        await asyncio.to_thread(_at_the_terminal, tmp_path / "client", api, http.port, str(newest))
        obeys.cancel()
