"""An agent that is there before its container engine: it finds the engine later, and says so."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stoker.agent.errors import SpawnFailed
from stoker.agent.workers.containers.errors import EngineError
from stoker.cli.agent import containers as agent_containers
from stoker.cli.agent.containers import container_engine, host_folders, late_engine
from tests.agent.workers.containers.container_host import Host
from tests.agent.workers.containers.scripted_engine import Call, Line, ScriptedEngine, scripted
from tests.system.stack import Stack, until

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The package leaves its sockets to the collector when nobody listens."""


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_containers, "LOOK_FIRST_S", 0.01)
    monkeypatch.setattr(agent_containers, "LOOK_LONGEST_S", 0.02)


def it_cannot_be_known(call: Call) -> None:
    """Whether it sees the agent's folders: it has no room for the image that would show it."""
    call.answer({"message": "no space left on device"}, 500)


class Node:
    """An agent's view of an engine that starts later, at the address that the agent was given."""

    def __init__(self, folder: Path, later: ExitStack, **named: str) -> None:
        self.folder, self.later = folder, later
        self.environment = {"DOCKER_HOST": f"unix://{folder}/s"}
        self.shown = host_folders(folder / "data", None, folder / "weights", named)
        (folder / "data").mkdir()

    async def agent_starts(self) -> Host:
        self.engine = await container_engine("agent-1", self.environment, self.shown)
        assert "does not answer" in self.engine.facts.why
        return Host(self.engine, self.folder / "data")

    async def engine_starts(
        self, *left: str, probe: Line = it_cannot_be_known, removes: Line | None = None
    ) -> ScriptedEngine:
        """Returns when the agent has made up its mind about it."""
        looking = late_engine(self.engine, "agent-1", self.environment, self.shown)
        task = asyncio.create_task(looking)
        await asyncio.sleep(0)
        fake_engine = self.later.enter_context(scripted(self.folder))
        fake_engine.containers |= set(left)
        fake_engine.script["/images/create"] = probe
        if removes is not None:
            fake_engine.script["DELETE"] = removes
        async with asyncio.timeout(60):
            assert await task
        return fake_engine


@pytest.fixture
def later() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def test_its_containers_start_once_the_engine_is_there(tmp_path: Path, later: ExitStack) -> None:
    node = Node(tmp_path, later)
    host = await node.agent_starts()
    with pytest.raises(SpawnFailed, match=r"this node has none: .* does not answer"):
        host.python("outputs/echo")
    fake_engine = await node.engine_starts("left-of-an-earlier-agent")
    assert node.engine.facts.summary == "docker 28.0.1"
    assert fake_engine.containers == set()
    worker = host.python("outputs/echo")
    await asyncio.to_thread(fake_engine.until, "/start")
    package = node.folder / "data" / "containers" / "package" / "stoker"
    assert {path.name for path in package.iterdir()} == {"__init__.py", "app_values.py", "worker"}
    worker.process.kill()
    await worker.exited()
    await host.spawner.close()


async def test_what_it_could_not_remove_is_known_to_it_still(tmp_path: Path, later: ExitStack) -> None:
    """Nobody knows which GPU it may have: no other gets one."""
    node = Node(tmp_path, later)
    host = await node.agent_starts()
    fake_engine = await node.engine_starts("stuck", removes=ScriptedEngine.refuse("device or resource busy"))
    with pytest.raises(EngineError, match="an earlier container that may have its GPU stays: device or"):
        await node.engine.free_devices(["nvidia.com/gpu=GPU-1"])
    del fake_engine.script["DELETE"]
    await node.engine.free_devices(["nvidia.com/gpu=GPU-1"])
    assert fake_engine.containers == set()
    await host.spawner.close()


@pytest.mark.parametrize("named", [{}, {"STOKER_HOST_DATA_DIR": "/else"}])
async def test_one_that_sees_other_folders_is_none_for_good(
    tmp_path: Path, later: ExitStack, named: dict[str, str]
) -> None:
    """An agent that is there already does not end for it."""
    node = Node(tmp_path, later, **named)
    host = await node.agent_starts()
    await node.engine_starts(probe=lambda call: call.answer({"message": "no such folder"}, 404))
    assert node.engine.facts.name == ""
    assert "on the engine's host is not the agent's" in node.engine.facts.why
    assert not await late_engine(node.engine, "agent-1", node.environment, node.shown), (
        "it is not asked again"
    )
    await host.spawner.close()


class Early(Stack):
    """Its agent is there before its engine."""

    def start_agent(self) -> None:
        command = ["agent", "--control", self.facts["grpc"], "--data-dir", str(self.folder / "agent")]
        self.agent, _ = self._start(command, "agent", {"DOCKER_HOST": f"unix://{self.folder}/s"})

    def containers(self) -> str:
        """What the node's record says of them, once there is one."""
        nodes = self.http.get(f"{self.facts['http']}/v1/nodes").json()
        return "".join(str(node["facts"]["containers"]) for node in nodes)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_the_nodes_record_shows_it(tmp_path: Path) -> None:
    stack = Early(tmp_path)
    try:
        stack.start()
        until(lambda: "does not answer" in stack.containers(), 60, "a node without an engine")
        with scripted(tmp_path) as fake_engine:
            fake_engine.script["/images/create"] = it_cannot_be_known
            until(lambda: stack.containers() == "docker 28.0.1", 100, "word of the engine")
    finally:
        stack.stop()
