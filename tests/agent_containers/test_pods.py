"""Pods in real containers: the stories of tests/agent, and what only a real engine can show."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))
sys.path.insert(0, str(Path(__file__).parent))
from container_engine_here import IMAGE, Dockerd, EngineHere, Podman, make_image, patient
from pod_stories import PORTS, STORIES, Place, Programs, tell
from registry_here import PASSWORD, USER, registry

from stoker.agent.container_engine import ContainerEngine
from stoker.agent.container_images import Images
from stoker.agent.container_plan import POD_LABEL, Limits
from stoker.agent.container_spawner import OnHost
from stoker.agent.pod_containers import PodContainers
from stoker.agent.pod_seam import PodFailed
from stoker.wire.messages import PodState, RegistryAuth, WorkerLimits

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


async def page(state: PodState) -> dict[str, Any]:
    """What its program says at the published port, once it listens."""
    public = next(port.public for port in state.ports if port.private == 8000)
    async with asyncio.timeout(PAGE_S):
        while True:
            told = await asyncio.to_thread(_page, public)
            if told is not None:
                return told
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


def a_place(engine: ContainerEngine, folder: Path) -> Place:
    volumes = folder / "volumes"
    volumes.mkdir()
    pods = PodContainers(
        engine,
        Images(engine, folder / "images.json"),
        "agent-1",
        (),
        limits=Limits(nproc=4096, pids=64),
        volumes=OnHost(volumes, volumes),
    )

    def its_volumes() -> set[str]:
        told = engine.client.volumes()["Volumes"] or ()
        return {one["Labels"][POD_LABEL] for one in told if POD_LABEL in (one["Labels"] or {})}

    def its_containers() -> set[str]:
        return {one["Labels"][POD_LABEL] for one in engine.client.containers(all=True)}

    async def is_up(state: PodState) -> None:
        await page(state)

    return Place(pods, PROGRAMS, LOOK_S, its_volumes, its_containers, is_up)


@pytest_asyncio.fixture
async def place(
    address: str, asked_once: ContainerEngine, engine: ContainerEngine, tmp_path: Path
) -> AsyncIterator[Place]:
    if engine.facts.name == "docker" and not engine.client.networks(names=["bridge"]):
        engine.close()
        pytest.skip("this engine has no bridge: one cannot be made here")
    yield a_place(engine, tmp_path)
    await asyncio.to_thread(engine.close)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_story(story: Any, place: Place) -> None:
    await tell(story, place)


async def test_what_it_finds_and_what_is_kept(place: Place) -> None:
    async def story(place: Place) -> None:
        place.wish(ports=PORTS, env={"WORD": "one"})
        told = await page(await place.up())
        assert (told["kept"], told["fresh"], told["uid"]) == (1, 1, 0)
        assert (told["env"]["WORD"], told["env"]["RUNPOD_POD_ID"]) == ("one", "p1")
        assert told["env"]["STOKER_VOLUME_PATH"] == "/workspace"
        assert told["rights"]["NoNewPrivs"] == "0", "sudo and sshd are the owner's own affair"
        assert int(told["rights"]["CapEff"], 16) & 1 << 21 == 0, "no CAP_SYS_ADMIN: it is not privileged"

        place.wish(restarts=1)
        told = await page(await place.up(restarts=1))
        assert (told["kept"], told["fresh"]) == (2, 2), "the same container"

        place.wish(version=2, env={"WORD": "two"})
        told = await page(await place.up(version=2))
        assert (told["kept"], told["fresh"], told["env"]["WORD"]) == (3, 1, "two"), "another one"

    await tell(story, place)


async def test_a_network_volume(place: Place, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.wish(
            ports=PORTS, volume="shared", volume_path="/data", env={"STOKER_VOLUME_PATH": "/elsewhere"}
        )
        told = await page(await place.up())
        assert told["env"]["STOKER_VOLUME_PATH"] == "/data"
        assert told["env"]["RUNPOD_VOLUME_ID"] == "shared"
        assert place.volumes() == set()

    await tell(story, place)
    assert (tmp_path / "volumes" / "shared" / "starts").read_text() == "x", "it outlives the pod"


async def test_a_disk_that_cannot_be_limited_is_said_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Or it is limited, where the engine's storage can."""

    async def story(place: Place) -> None:
        for pod in ("p1", "p2"):
            place.wish(pod, wish="RUNNING", disk_bytes=1 << 30, command=("python", "-c", "print('had')"))
            assert (await place.told("exited", pod)).exit_code == 0

    await tell(story, place)
    said = [one for one in caplog.messages if one.startswith("the disks of pods are not limited")]
    assert len(said) <= 1


async def test_an_image_behind_a_password(place: Place, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        with registry(tmp_path) as (held, where):
            image = f"{where}/a/b:1"
            place.wish(image=image, command=())
            assert "no credentials are named" in (await place.told("failed")).reason
            place.wish(registry=RegistryAuth(USER, "wrong-one"))
            failed = await place.told("failed", since=len(place.said))
            assert failed.reason.endswith("does not take the credentials of robot")
            place.wish(registry=RegistryAuth(USER, PASSWORD))
            assert (await place.told("exited")).log_tail == ("pulled",)
            held.publish(held.program.replace(b"pulled", b"moved!"))
            place.wish(restarts=1)
            assert (await place.told("exited", restarts=1)).log_tail[-1] == "pulled"
            client: Any = place.engine._engine.client  # type: ignore[attr-defined]
            place.wish(wish="TERMINATED")
            await place.told("gone")
            client.remove_image(image, force=True)

    await tell(story, place)


async def test_another_agents_container_is_not_touched(place: Place, engine: ContainerEngine) -> None:
    def make() -> str:
        client: Any = engine.client
        request = {"Image": IMAGE, "Cmd": ["true"], "HostConfig": {"NetworkMode": "host"}}
        return str(client.create_container_from_config(request, "stoker-p1")["Id"])

    made = await asyncio.to_thread(make)
    try:
        with pytest.raises(PodFailed, match="that is not this agent's has the name stoker-p1"):
            await place.engine.look("p1")
        assert await place.engine.found() == {}
    finally:
        await asyncio.to_thread(engine.client.remove_container, made)


async def test_the_sweep_of_workers_leaves_pods(place: Place, engine: ContainerEngine) -> None:
    async def story(place: Place) -> None:
        place.wish(ports=PORTS)
        await place.up()
        assert await engine.remove_all("agent-1") == 0
        await place.next_agent()
        assert place.pods.held()[0].state == "running"

    await tell(story, place)


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
    async def story(place: Place) -> None:
        place.wish(ports=PORTS)
        place.wish("p2", command=PROGRAMS.ends, env={"TOKEN": "t", "WORD": "w"})
        await page(await place.up())
        await place.told("exited", "p2")
        await asyncio.to_thread(here.stop)
        await place.told("failed")
        since = len(place.said)
        await asyncio.to_thread(here.start)
        told = await page(await place.told("running", since=since))
        starts = 2 if isinstance(here, Dockerd) else 1
        assert (told["kept"], told["fresh"]) == (starts, starts)
        await the_agent_too(place, here)

    found = await asyncio.to_thread(patient, here.address)
    await tell(story, a_place(found, folder))
    await asyncio.to_thread(found.close)


async def the_agent_too(place: Place, here: EngineHere) -> None:
    """Both are away at once. What had ended by itself before is left as it is."""
    await place.end()
    await asyncio.to_thread(here.stop)
    await asyncio.to_thread(here.start)
    place.begin()
    await place.pods.looked.wait()
    since = len(place.said)
    place.say()
    await page(await place.told("running", since=since))
    ended = await place.told("exited", "p2", since)
    assert ended.exit_code == 7
    assert [one.state for one in place.said if one.pod == "p2"].count("creating") == 1
