"""Pods in real containers: the stories of tests/agent, and what only a real engine can show."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stoker.agent.host.free_ports import HostPorts
from stoker.agent.pods.containers import PodContainers
from stoker.agent.pods.interfaces import PodFailed
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.images import Images
from stoker.agent.workers.containers.plan import POD_LABEL, ContainerLimits
from stoker.agent.workers.containers.spawner import HostFolder
from stoker.wire.messages import PodPort, PodState, RegistryAuth, WorkerLimits
from tests.agent.pods.pod_stories import PORTS, STORIES, PodNode, Programs, run_story
from tests.agent.workers.containers.images.registry_here import PASSWORD, USER, registry
from tests.container_engine_here import IMAGE, Dockerd, EngineHere, Podman, make_image, patient

pytestmark = pytest.mark.slow

SERVES = ("python", "/here/serves.py")
ENDS = "import os; print('no model'); print(os.environ['TOKEN'], os.environ['WORD']); raise SystemExit(7)"
PROGRAMS = Programs(
    image=IMAGE,
    absent="127.0.0.1:1/none:1",
    runs=SERVES,
    stubborn=(*SERVES, "stubborn"),
    ends=("python", "-c", ENDS),
    needs_memory=("python", "-c", "kept = [bytearray(b'x' * (16 << 20)) for _ in range(64)]"),
    limits=WorkerLimits(memory_bytes=64 << 20),
)
LOOK_S = 0.1
PAGE_S = 60.0


async def page(state: PodState, private: int = 8000) -> dict[str, Any]:
    """What its program says at the published port, once it listens."""
    public = next(port.public for port in state.ports if port.private == private)
    async with asyncio.timeout(PAGE_S):
        while True:
            answer = await asyncio.to_thread(_page, public)
            if answer is not None:
                return answer
            await asyncio.sleep(0.05)  # dockerd's proxy takes the connection before the program listens


def _page(port: int) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return dict(json.loads(connection.getresponse().read()))
    except (OSError, http.client.HTTPException, ValueError):  # half a page: it ends
        return None
    finally:
        connection.close()


def pod_node(engine: ContainerEngine, folder: Path) -> PodNode:
    volumes = folder / "volumes"
    volumes.mkdir()
    pods = PodContainers(
        engine,
        Images(engine, folder / "images.json"),
        "agent-1",
        (),
        limits=ContainerLimits(nproc=4096, pids=64),
        volumes=HostFolder(volumes, volumes),
    )

    def its_volumes() -> set[str]:
        listed = engine.client.volumes()["Volumes"] or ()
        return {one["Labels"][POD_LABEL] for one in listed if POD_LABEL in (one["Labels"] or {})}

    def its_containers() -> set[str]:
        return {one["Labels"][POD_LABEL] for one in engine.client.containers(all=True)}

    async def is_up(state: PodState) -> None:
        await page(state)

    return PodNode(pods, PROGRAMS, LOOK_S, its_volumes, its_containers, is_up)


@pytest_asyncio.fixture
async def node(
    address: str, shared_engine: ContainerEngine, engine: ContainerEngine, tmp_path: Path
) -> AsyncIterator[PodNode]:
    if engine.facts.name == "docker" and not engine.client.networks(names=["bridge"]):
        engine.close()
        pytest.skip("this engine has no bridge: one cannot be made here")
    yield pod_node(engine, tmp_path)
    await asyncio.to_thread(engine.close)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_story(story: Any, node: PodNode) -> None:
    await run_story(story, node)


async def test_what_it_finds_and_what_is_kept(node: PodNode) -> None:
    async def story(node: PodNode) -> None:
        node.wish(ports=PORTS, env={"WORD": "one"})
        seen = await page(await node.up())
        assert (seen["kept"], seen["fresh"], seen["uid"]) == (1, 1, 0)
        assert (seen["env"]["WORD"], seen["env"]["RUNPOD_POD_ID"]) == ("one", "p1")
        assert seen["env"]["STOKER_VOLUME_PATH"] == "/workspace"
        assert seen["rights"]["NoNewPrivs"] == "0", "sudo and sshd are the owner's own affair"
        assert int(seen["rights"]["CapEff"], 16) & 1 << 21 == 0, "no CAP_SYS_ADMIN: it is not privileged"

        node.wish(restarts=1)
        seen = await page(await node.up(restarts=1))
        assert (seen["kept"], seen["fresh"]) == (2, 2), "the same container"

        node.wish(version=2, env={"WORD": "two"})
        seen = await page(await node.up(version=2))
        assert (seen["kept"], seen["fresh"], seen["env"]["WORD"]) == (3, 1, "two"), "another one"

    await run_story(story, node)


async def test_a_port_that_is_the_same_inside_and_outside(node: PodNode) -> None:
    async def story(node: PodNode) -> None:
        ports = (PodPort(70_000, "tcp"), PodPort(8000, "tcp"))
        node.wish(ports=ports, env={"PORT_OF": "RUNPOD_TCP_PORT_70000"})
        state = await node.reported("running")
        public = {port.private: port.public for port in state.ports}
        seen = await page(state, 70_000)
        assert seen["env"]["RUNPOD_TCP_PORT_70000"] == str(public[70_000])
        assert seen["env"]["RUNPOD_TCP_PORT_8000"] == str(public[8000])
        assert seen["env"]["RUNPOD_POD_HOSTNAME"] == seen["env"]["HOSTNAME"] == "p1"

    await run_story(story, node)


async def test_a_port_that_somebody_takes_meanwhile(node: PodNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at it and the start."""
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        offered = [other.getsockname()[1]]

        take = HostPorts.take

        def first_the_others(self: HostPorts, owner: str, count: int) -> list[int]:
            return [offered.pop()] if offered else take(self, owner, count)

        monkeypatch.setattr(HostPorts, "take", first_the_others)

        async def story(node: PodNode) -> None:
            node.wish(ports=(PodPort(8000, "http"),))
            assert (await page(await node.up()))["fresh"] == 1

        await run_story(story, node)
    assert offered == []


async def test_a_network_volume(node: PodNode, tmp_path: Path) -> None:
    async def story(node: PodNode) -> None:
        node.wish(ports=PORTS, volume="shared", volume_path="/data", env={"STOKER_VOLUME_PATH": "/elsewhere"})
        seen = await page(await node.up())
        assert seen["env"]["STOKER_VOLUME_PATH"] == "/data"
        assert seen["env"]["RUNPOD_VOLUME_ID"] == "shared"
        assert node.volumes() == set()

    await run_story(story, node)
    assert (tmp_path / "volumes" / "shared" / "starts").read_text() == "x", "it outlives the pod"


async def test_a_disk_that_cannot_be_limited_is_logged_once(
    node: PodNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Or it is limited, where the engine's storage can."""

    async def story(node: PodNode) -> None:
        for pod in ("p1", "p2"):
            node.wish(pod, wish="RUNNING", disk_bytes=1 << 30, command=("python", "-c", "print('had')"))
            assert (await node.reported("exited", pod)).exit_code == 0

    await run_story(story, node)
    reports = [one for one in caplog.messages if one.startswith("the disks of pods are not limited")]
    assert len(reports) <= 1


async def test_an_image_behind_a_password(node: PodNode, tmp_path: Path) -> None:
    async def story(node: PodNode) -> None:
        with registry(tmp_path) as (held, where):
            image = f"{where}/a/b:1"
            node.wish(image=image, command=())
            assert "no credentials are named" in (await node.reported("failed")).reason
            node.wish(registry=RegistryAuth(USER, "wrong-one"))
            failed = await node.reported("failed", since=len(node.reports))
            assert failed.reason.endswith("does not take the credentials of robot")
            node.wish(registry=RegistryAuth(USER, PASSWORD))
            assert (await node.reported("exited")).log_tail == ("pulled",)
            held.publish(held.program.replace(b"pulled", b"moved!"))
            node.wish(restarts=1)
            assert (await node.reported("exited", restarts=1)).log_tail[-1] == "pulled"
            client: Any = node.engine._engine.client  # type: ignore[attr-defined]
            node.wish(wish="TERMINATED")
            await node.reported("gone")
            client.remove_image(image, force=True)

    await run_story(story, node)


async def test_another_agents_container_is_not_touched(node: PodNode, engine: ContainerEngine) -> None:
    def make() -> str:
        client: Any = engine.client
        request = {"Image": IMAGE, "Cmd": ["true"], "HostConfig": {"NetworkMode": "host"}}
        return str(client.create_container_from_config(request, "stoker-p1")["Id"])

    made = await asyncio.to_thread(make)
    try:
        with pytest.raises(PodFailed, match="that is not this agent's has the name stoker-p1"):
            await node.engine.look("p1")
        assert await node.engine.found() == {}
    finally:
        await asyncio.to_thread(engine.client.remove_container, made)


async def test_the_sweep_of_workers_leaves_pods(node: PodNode, engine: ContainerEngine) -> None:
    async def story(node: PodNode) -> None:
        node.wish(ports=PORTS)
        await node.up()
        assert await engine.remove_all("agent-1") == 0
        await node.next_agent()
        assert node.pods.held()[0].state == "running"

    await run_story(story, node)


@pytest.fixture
def collected() -> Iterator[None]:
    """The package leaves its sockets to the collector when nobody listens."""
    yield
    gc.collect()


class PodmanAlone(Podman):
    outlived = True


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [Dockerd, PodmanAlone])
async def test_an_engine_that_stops_and_starts(
    kind: type[EngineHere], tmp_path: Path, collected: None
) -> None:
    """Dockerd takes its containers along; podman's service is not missed by them."""
    try:
        here = kind()
    except RuntimeError as why:
        pytest.skip(str(why))
    with here:
        try:
            here.start()
        except RuntimeError as why:
            pytest.skip(str(why))
        if getattr(here, "bridge", "") == "none":
            pytest.skip("no bridge can be made here")
        make_image(here.address)
        await goes_and_comes(here, tmp_path)


async def goes_and_comes(here: EngineHere, folder: Path) -> None:
    async def story(node: PodNode) -> None:
        node.wish(ports=PORTS)
        node.wish("p2", command=PROGRAMS.ends, env={"TOKEN": "t", "WORD": "w"})
        await page(await node.up())
        await node.reported("exited", "p2")
        await asyncio.to_thread(here.stop)
        await node.reported("failed")
        since = len(node.reports)
        await asyncio.to_thread(here.start)
        seen = await page(await node.reported("running", since=since))
        starts = 2 if isinstance(here, Dockerd) else 1
        assert (seen["kept"], seen["fresh"]) == (starts, starts)
        await the_agent_too(node, here)

    found = await asyncio.to_thread(patient, here.address)
    await run_story(story, pod_node(found, folder))
    await asyncio.to_thread(found.close)


async def the_agent_too(node: PodNode, here: EngineHere) -> None:
    """Both are away at once. What had ended by itself before is left as it is."""
    await node.end()
    await asyncio.to_thread(here.stop)
    await asyncio.to_thread(here.start)
    node.begin()
    await node.pods.looked.wait()
    since = len(node.reports)
    node.send()
    await page(await node.reported("running", since=since))
    ended = await node.reported("exited", "p2", since)
    assert ended.exit_code == 7
    assert [one.state for one in node.reports if one.pod == "p2"].count("creating") == 1
