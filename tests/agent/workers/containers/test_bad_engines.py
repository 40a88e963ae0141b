"""Engines that refuse, hang, go in the middle or answer nonsense, at every step: played by a script."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stoker.agent.pods.containers import PodContainers
from stoker.agent.pods.interfaces import PodFailed
from stoker.agent.workers.containers import connect as container_connect
from stoker.agent.workers.containers import engine as container_engine
from stoker.agent.workers.containers import process, pull, spawner
from stoker.agent.workers.containers.connect import addresses, connect
from stoker.agent.workers.containers.errors import EngineError
from stoker.agent.workers.containers.images import Images, wanted_by
from stoker.agent.workers.containers.plan import EngineFacts
from stoker.agent.workers.containers.process import LOST, NEVER_RAN
from stoker.wire.messages import Device, PodSpec, RegistryAuth, WorkerSpec
from tests.agent.workers.containers.container_host import Host
from tests.agent.workers.containers.scripted_engine import DOCKER, Call, ScriptedEngine, scripted

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The package leaves its sockets to the collector when nobody listens."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for as long as a node would."""
    for module, name, seconds in (
        (container_engine, "SWEEP_S", 0.01),
        (process, "KILL_AGAIN_S", 0.01),
        (process, "SIGNALS_S", 0.1),
        (spawner, "CLOSE_S", 0.1),
    ):
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(params=["docker", "podman"])
def fake_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScriptedEngine]:
    with scripted(tmp_path, podman=request.param == "podman") as engine:
        yield engine


@pytest_asyncio.fixture
async def host(fake_engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[Host]:
    engine = await asyncio.to_thread(connect, [fake_engine.address])
    made = Host(engine, tmp_path / "data")
    yield made
    fake_engine.script.clear()
    fake_engine.released.set()
    await made.spawner.close()


async def until(fake_engine: ScriptedEngine, pattern: str, times: int = 1) -> None:
    await asyncio.to_thread(fake_engine.until, pattern, times)


def once(fake_engine: ScriptedEngine, first: Any) -> Any:
    """Like `first`, and from then on as usual."""
    left = [first]

    def line(call: Call) -> None:
        (left.pop() if left else fake_engine.usual)(call)

    return line


def dies(call: Call) -> None:
    """No answer, and no connection."""


# ---- before there is a worker


def test_podman_is_known_without_its_slow_version(tmp_path: Path) -> None:
    with scripted(tmp_path, podman=True) as fake_engine:
        fake_engine.script["/version"] = fake_engine.hang
        engine = connect([fake_engine.address])
        assert engine.facts.summary == "podman 5.2.0"
        engine.close()


def test_an_engine_that_hangs_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_connect, "OPEN_S", 0.1)
    with scripted(tmp_path) as fake_engine:
        fake_engine.script["_ping"] = fake_engine.hang
        assert "does not answer" in connect([fake_engine.address]).facts.why


def test_a_socket_that_may_not_be_looked_at_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """/run/podman is root's alone."""

    def refuses(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_socket", refuses)
    assert addresses({}, 1000) == []


async def test_what_an_earlier_agent_left_goes_though_one_of_it_cannot(
    host: Host, fake_engine: ScriptedEngine
) -> None:
    fake_engine.containers |= {"a", "b", "c"}
    fake_engine.script["/a?"] = once(
        fake_engine, fake_engine.refuse("removal of container a is already in progress", 409)
    )
    with pytest.raises(EngineError, match="already in progress"):
        await host.engine.remove_all("agent-1")
    assert fake_engine.containers <= {"a"}
    await until(fake_engine, "DELETE", 4)
    assert all("force=" in one for one in fake_engine.calls if "DELETE" in one)


# ---- a worker's steps


STEPS = ["GET /images/", "/create", "/attach", "/start", "/wait", "GET /containers/c1/json"]
WITHOUT_EFFECT = {("/wait", "hangs"), ("/start", "nonsense"), ("/attach", "nonsense")}
"""Failures that change nothing: the agent does not read these answers, and a wait may take any time."""
FAILURES = [
    (step, failure)
    for step in STEPS
    for failure in ("refuses", "dies", "hangs", "nonsense")
    if (step, failure) not in WITHOUT_EFFECT
]


@pytest.mark.parametrize(("step", "failure"), FAILURES)
async def test_each_step_may_fail_and_the_worker_ends_with_a_reason(
    fake_engine: ScriptedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failure: str
) -> None:
    if failure == "hangs":
        for module in (container_connect, container_engine):
            monkeypatch.setattr(module, "CALL_S", 0.7)
    fake_engine.script[step] = {
        "refuses": fake_engine.refuse("no space left on device"),
        "dies": dies,
        "hangs": fake_engine.hang,
        "nonsense": lambda call: call.send(b"<html>"),
    }[failure]
    engine = await asyncio.to_thread(connect, [fake_engine.address])
    host = Host(engine, tmp_path / "data")
    fake_engine.ended.set()
    ended = await host.python("outputs/echo").exited()
    assert ended.status != 0
    assert ended.reason.startswith("the container of worker w1 "), ended.reason
    if failure == "refuses":
        assert ended.reason.endswith("no space left on device")
    if failure == "hangs":  # a call that was slow for another reason comes again
        await asyncio.to_thread(fake_engine.until_empty)
    assert fake_engine.containers == set()
    fake_engine.released.set()
    await host.spawner.close()


async def a_worker(host: Host, fake_engine: ScriptedEngine) -> Any:
    """One that runs."""
    worker = host.python("outputs/echo")
    await until(fake_engine, "/start")
    return worker


async def test_an_engine_that_missed_why_the_kernel_killed_is_not_needed_for_it(
    host: Host, fake_engine: ScriptedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container's own cgroup has counted it."""
    (tmp_path / "memory.events").write_text("oom_kill 1\n")
    monkeypatch.setattr(container_engine, "counter", lambda _: tmp_path / "memory.events")
    worker = await a_worker(host, fake_engine)
    fake_engine.ended.set()
    assert (await worker.exited()).reason == "killed: out of memory"


async def test_the_process_has_the_id_of_its_image_once_that_is_known(
    host: Host, fake_engine: ScriptedEngine
) -> None:
    worker = host.start()
    assert worker.process.image_id == ""
    await until(fake_engine, "/start")
    assert worker.process.image_id == "sha256:1"
    worker.process.kill()
    await worker.exited()


async def test_a_kill_that_was_lost_comes_again(host: Host, fake_engine: ScriptedEngine) -> None:
    fake_engine.script["/kill"] = once(fake_engine, fake_engine.refuse("the engine is just being started"))
    worker = await a_worker(host, fake_engine)
    worker.process.kill()
    assert (await worker.exited()).reason == "killed by the agent"


async def test_a_kill_waits_for_no_containers_that_are_being_made(
    host: Host, fake_engine: ScriptedEngine
) -> None:
    worker = await a_worker(host, fake_engine)
    fake_engine.script["/create"] = fake_engine.hang
    made = [host.python("outputs/echo") for _ in range(container_engine.CALLS)]
    await until(fake_engine, "/create", 1 + len(made))
    worker.process.kill()
    await until(fake_engine, "/kill")
    fake_engine.script.clear()
    fake_engine.released.set()
    for one in made:
        await one.exited()


async def test_a_kill_that_is_never_answered_holds_up_no_end(host: Host, fake_engine: ScriptedEngine) -> None:
    """Podman's, of a container that somebody removes meanwhile."""
    fake_engine.script["/kill"] = fake_engine.hang
    worker = await a_worker(host, fake_engine)
    worker.process.kill()
    await until(fake_engine, "/kill")
    fake_engine.containers.clear()
    fake_engine.script["/wait"] = lambda call: call.answer(
        {"StatusCode": -1, "Error": {"Message": "no such container"}}
    )
    fake_engine.ended.set()
    ended = await worker.exited()
    assert ended.status == LOST
    assert "does not know how it ended" in ended.reason
    assert "no such container" in ended.reason


async def test_a_container_that_is_being_removed_gets_no_signal(
    host: Host, fake_engine: ScriptedEngine
) -> None:
    fake_engine.script["DELETE"] = fake_engine.hang
    worker = await a_worker(host, fake_engine)
    fake_engine.ended.set()
    await until(fake_engine, "DELETE")
    worker.process.terminate()
    worker.process.kill()
    assert not worker.process._signals
    fake_engine.released.set()
    await worker.exited()
    assert not [one for one in fake_engine.calls if "/kill" in one]


async def test_an_agent_leaves_an_engine_that_hangs(fake_engine: ScriptedEngine, tmp_path: Path) -> None:
    engine = await asyncio.to_thread(connect, [fake_engine.address])
    host = Host(engine, tmp_path / "data")
    worker = await a_worker(host, fake_engine)
    fake_engine.script["/kill"] = fake_engine.hang
    async with asyncio.timeout(60):
        await host.spawner.close()
    assert worker.exit.status == LOST
    assert worker.exit.reason == "the agent ended, and its container engine did not answer"


async def test_what_cannot_be_removed_is_removed_as_soon_as_it_can(
    host: Host, fake_engine: ScriptedEngine
) -> None:
    """Though no other is made: the memory that it holds may be what keeps them from it."""
    fake_engine.script["DELETE"] = once(
        fake_engine, fake_engine.refuse("removal is already in progress", 409)
    )
    worker = await a_worker(host, fake_engine)
    worker.process.kill()
    await worker.exited()
    await until(fake_engine, "DELETE", 2)


async def test_one_that_is_made_when_it_was_given_up_already_is_removed(
    host: Host, fake_engine: ScriptedEngine
) -> None:
    """Only its name is known of it. An engine that refuses it makes none."""

    def removed(call: Call) -> None:
        if name_of(fake_engine) in fake_engine.containers:
            fake_engine.usual(call)
        else:
            call.answer({"message": "no such container"}, 404)

    fake_engine.script |= {"/create": once(fake_engine, dies), "/containers/stoker-w1": removed}
    assert (await host.python("outputs/echo").exited()).status == NEVER_RAN
    await until(fake_engine, "/containers/stoker-w1", 2)
    fake_engine.containers.add(name_of(fake_engine))
    await asyncio.to_thread(fake_engine.until_empty)
    fake_engine.script["/create"] = fake_engine.refuse("no space left on device")
    assert (await host.python("outputs/echo").exited()).status == NEVER_RAN
    assert not host.engine._strays


def name_of(fake_engine: ScriptedEngine) -> str:
    """Of the container that is looked for."""
    found = re.search(r"/containers/(stoker-w1-\w+)", " ".join(fake_engine.calls))
    assert found
    return found[1]


async def test_a_container_goes_without_the_ten_seconds_that_podman_gives(tmp_path: Path) -> None:
    with scripted(tmp_path, podman=True) as fake_engine:
        engine = await asyncio.to_thread(connect, [fake_engine.address])
        await engine.remove("c1")
        assert "timeout=0" in fake_engine.calls[-1]
        engine.close()


# ---- its image


AUTH = RegistryAuth("robot", "swordfish")
PULLS = [
    ([{"status": "Pulling"}, {"error": "denied: no"}], 200, "denied: no; the registry does not take"),
    ([{"errorDetail": {"message": "denied: no"}}], 200, "denied: no; the registry does not take"),
    ([{"message": "manifest unknown"}], 404, "manifest unknown"),
    ([{"cause": "manifest unknown"}], 500, "manifest unknown"),
    ([], 500, "status 500"),
    (["<html>"], 502, "answer cannot be read"),
    ([{"error": "swordfish is wrong"}], 200, r"\[password\] is wrong"),
]


@pytest.mark.parametrize(("steps", "status", "pattern"), PULLS)
async def test_why_a_pull_failed(
    host: Host, fake_engine: ScriptedEngine, steps: list[Any], status: int, pattern: str
) -> None:
    body = b"".join(json.dumps(step).encode() + b"\r\n" for step in steps)
    fake_engine.script["/images/create"] = lambda call: call.send(body, status)
    with pytest.raises(EngineError, match=pattern):
        await host.engine.pull("a/b:1", AUTH)


async def test_who_asks_for_an_image_that_is_being_pulled_waits_for_that(
    host: Host, fake_engine: ScriptedEngine
) -> None:
    """Also when the worker that asked first is there no more: it took longer than a worker may to start."""

    def in_time(call: Call) -> None:
        fake_engine.hang(call)
        call.send(b"")

    fake_engine.script["/images/create"] = in_time
    first = asyncio.create_task(host.engine.pull("a/b:1"))
    await until(fake_engine, "/images/create")
    first.cancel()
    later = [asyncio.create_task(host.engine.pull("a/b:1")) for _ in range(2)]
    other = asyncio.create_task(host.engine.pull("a/b:1", AUTH))
    await until(fake_engine, "/images/create", 2)
    fake_engine.released.set()
    await asyncio.gather(*later, other)
    assert sum("/images/create" in one for one in fake_engine.calls) == 2
    await host.engine.pull("a/b:1")
    assert sum("/images/create" in one for one in fake_engine.calls) == 3, (
        "a finished one is no answer any more"
    )


async def test_podman_stores_in_silence_what_it_has_read(
    host: Host, fake_engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "QUIET_S", 0.6)
    stored_s = 1.2 if host.engine.facts.name == "podman" else 60.0

    def stores(call: Call) -> None:
        call.steps({"status": "Downloading"}, {"status": "Download complete"})
        call.hung_up_within(stored_s)
        call.steps_end()

    fake_engine.script["/images/create"] = stores
    if host.engine.facts.name == "podman":
        await host.engine.pull("a/b:1")
        return
    with pytest.raises(EngineError, match="its registry has been silent for"):
        await host.engine.pull("a/b:1")


async def test_a_pin_that_cannot_be_written_holds_for_this_agent(
    host: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk may be full. A pod's would have been the end of its agent."""
    images = Images(host.engine, tmp_path / "no-folder" / "i.json")
    spec = WorkerSpec("w1", "e", 1, "", image="a/b:1")
    assert await images.resolve(wanted_by(spec)) == "sha256:1"
    assert "the pinned images cannot be saved" in caplog.text
    images.forget("pod p1")


# ---- pods


def the_pods(host: Host, *devices: Device) -> PodContainers:
    return PodContainers(host.engine, Images(host.engine, host.folder / "i.json"), "agent-1", devices)


@pytest.mark.parametrize(
    "state", [{"Status": "running", "StartedAt": "soon"}, {"Status": "exited", "ExitCode": None}, None]
)
async def test_what_nobody_can_read_of_a_pod_is_no_agents_end(
    host: Host, fake_engine: ScriptedEngine, state: Any
) -> None:
    answers = {"Config": {"Labels": {"stoker.agent": "agent-1"}}, "State": state, "NetworkSettings": {}}
    fake_engine.script["/json"] = lambda call: call.answer(answers | {"HostConfig": {}})
    with pytest.raises(PodFailed, match="answer cannot be read"):
        await the_pods(host).look("p1")


async def test_no_pod_gets_a_gpu_that_a_doomed_container_may_hold(
    host: Host, fake_engine: ScriptedEngine
) -> None:
    fake_engine.headers = DOCKER
    host.engine.facts = EngineFacts("docker", "28.0.1", cdi=True)
    fake_engine.script["DELETE"] = fake_engine.refuse("device or resource busy")
    with pytest.raises(EngineError):
        await host.engine.remove("c1")
    pods = the_pods(host, Device("GPU-1", "gpu", "H100"))
    spec = PodSpec("p1", 1, "RUNNING", "a/b:1", devices=("GPU-1",))
    with pytest.raises(
        PodFailed, match="an earlier container that may have its GPU stays: device or resource busy"
    ):
        await pods.start(spec)
    assert not [one for one in fake_engine.calls if "/start" in one]
    del fake_engine.script["DELETE"]
    await pods.start(spec)
