"""What needs no engine: which image is meant, what a node without one says, and the limits' words."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs.tail import LogTail
from stoker.agent.interfaces import WorkerExit
from stoker.agent.pods.containers import PodContainers
from stoker.agent.workers.containers.connect import addresses, connect
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.errors import EngineError, NotThere
from stoker.agent.workers.containers.images import Images, wanted_by
from stoker.agent.workers.containers.oom import counter, kills
from stoker.agent.workers.containers.plan import SOCKET, EngineFacts
from stoker.agent.workers.containers.process import Container, ContainerProcess, FrameListener
from stoker.agent.workers.containers.pull import explain
from stoker.agent.workers.containers.spawner import ContainerSpawner, HostFolder, HostFolders
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.cli.agent import containers
from stoker.cli.agent.containers import container_engine, container_limits, host_folders
from stoker.cli.errors import CliError
from stoker.wire.messages import PodSpec, RegistryAuth, WorkerSpec
from stoker.worker.frames import Frame

HANDLERS = Path(__file__).parents[3] / "handlers"
SOURCE = Path(__file__).parents[4] / "src"


class FakeEngine:
    """`here` are this node's images by name, `registry` those that can be pulled."""

    def __init__(self) -> None:
        self.here: dict[str, dict[str, Any]] = {}
        self.registry: dict[str, dict[str, Any]] = {}
        self.pulled: list[str] = []

    def publish(self, name: str, number: int) -> None:
        image = {"Id": f"sha256:{number}", "RepoDigests": [f"a/b@sha256:{number}"]}
        self.registry |= {name: image, f"a/b@sha256:{number}": image}

    async def image(self, name: str) -> dict[str, Any]:
        for known, image in self.here.items():
            if name in (known, image["Id"]):
                return image
        raise NotThere(f"no such image: {name}")

    async def pull(self, name: str, auth: RegistryAuth | None = None) -> None:
        self.pulled.append(name)
        self.let_in = auth
        if name not in self.registry:
            raise EngineError("manifest unknown")
        self.here[name] = self.registry[name]


def spec(version: int = 1) -> WorkerSpec:
    return WorkerSpec("w1", "e", version, "", image="a/b:1")


@pytest.fixture
def engine() -> FakeEngine:
    made = FakeEngine()
    made.publish("a/b:1", 1)
    return made


async def test_a_version_keeps_its_image_when_the_tag_moves_and_the_agent_starts_again(
    engine: FakeEngine, tmp_path: Path
) -> None:
    assert await Images(engine, tmp_path / "i.json").resolve(wanted_by(spec())) == "sha256:1"
    engine.publish("a/b:1", 2)
    engine.here.clear()
    again = Images(engine, tmp_path / "i.json")
    assert await again.resolve(wanted_by(spec())) == "sha256:1"
    assert engine.pulled == ["a/b:1", "a/b@sha256:1"]
    assert await again.resolve(wanted_by(spec(version=2))) == "sha256:2"


class Answer:
    """Of an engine (or of a proxy before it) that does not speak as it should."""

    status_code = 200

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def iter_lines(self) -> list[bytes]:
        return [b"<html>"]


class Garbled:
    base_url, api_version, _auth_configs = "http://engine", "1.43", None

    def post(self, *_: object, **__: object) -> Answer:
        return Answer()

    def close(self) -> None:
        pass


async def test_a_pull_whose_answer_nobody_can_read_is_over() -> None:
    client: Any = Garbled()
    engine = ContainerEngine(client, EngineFacts("docker", "27.0"))
    with pytest.raises(EngineError, match="answer cannot be read"):
        async with asyncio.timeout(30):
            await engine.pull("a/b:1", RegistryAuth("u", "p"))
    engine.close()


async def test_a_worker_whose_container_breaks_in_an_unknown_way_has_an_end(engine: FakeEngine) -> None:
    class Broken:
        async def resolve(self, _: object) -> str:
            raise RuntimeError("nobody thought of this")

    reported: list[WorkerExit] = []

    class Watcher:
        def on_exit(self, ended: WorkerExit) -> None:
            reported.append(ended)

    parts: tuple[Any, ...] = (engine, Broken(), Watcher(), LogTail())
    await ContainerProcess(Container(spec(), lambda _: Any, "c", None, None), *parts).ended
    assert [(ended.status, "nobody thought of this" in ended.reason) for ended in reported] == [(125, True)]


async def test_an_image_without_a_registry_that_has_gone(engine: FakeEngine, tmp_path: Path) -> None:
    engine.here["a/b:1"] = {"Id": "sha256:9", "RepoDigests": []}
    images = Images(engine, tmp_path / "i.json")
    assert await images.resolve(wanted_by(spec())) == "sha256:9"
    engine.here.clear()
    with pytest.raises(EngineError, match="was sha256:9 on this node; that has gone, and no registry has it"):
        await images.resolve(wanted_by(spec()))


async def test_a_pull_that_fails_and_a_torn_file(engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "i.json").write_text('{"e 1 a/b:1": 5')
    engine.registry.clear()
    with pytest.raises(EngineError, match=r"^image a/b:1 cannot be pulled: manifest unknown$"):
        await Images(engine, tmp_path / "i.json").resolve(wanted_by(spec()))


@pytest.mark.parametrize("image", ["b:1", "a/b:1", "here:5000/a/b", "here:5000/a/b:1"])
async def test_a_pin_is_what_its_own_registry_calls_it(
    engine: FakeEngine, tmp_path: Path, image: str
) -> None:
    digests = ["elsewhere:5000/x/ab@sha256:7", f"docker.io/{image.removesuffix(':1')}@sha256:8"]
    engine.here[image] = {"Id": "sha256:9", "RepoDigests": digests}
    await Images(engine, tmp_path / "i.json").resolve(wanted_by(replace(spec(), image=image)))
    (pin,) = json.loads((tmp_path / "i.json").read_text()).values()
    assert pin["digest"] == digests[1]


@pytest.mark.parametrize("image", ["b:1", "library/b", "docker.io/library/b:1"])
@pytest.mark.parametrize("reported", ["b", "docker.io/library/b"])
async def test_a_pin_of_the_docker_hub_is_not_another_registrys_of_that_name(
    engine: FakeEngine, tmp_path: Path, image: str, reported: str
) -> None:
    """It would be sent this one's credentials."""
    digests = ["elsewhere:5000/b@sha256:7", "elsewhere:5000/library/b@sha256:7", f"{reported}@sha256:8"]
    engine.here[image] = {"Id": "sha256:9", "RepoDigests": digests}
    await Images(engine, tmp_path / "i.json").resolve(wanted_by(replace(spec(), image=image)))
    (pin,) = json.loads((tmp_path / "i.json").read_text()).values()
    assert pin["digest"] == digests[2]


def test_another_user_finds_no_container_of_the_agents(engine: Any, tmp_path: Path) -> None:
    """Whoever saw its folder could be faster at its socket than the container, and get its jobs."""
    engine.facts = EngineFacts("docker", "28.0.1")
    ContainerSpawner(
        engine, HostFolders(HostFolder(tmp_path, tmp_path)), "n", ScratchFolders(tmp_path / "scratch")
    )
    assert (tmp_path / "containers").stat().st_mode & 0o777 == 0o700


async def test_a_node_without_an_engine(tmp_path: Path) -> None:
    engine = connect([])
    spawner = ContainerSpawner(
        engine, HostFolders(HostFolder(tmp_path, tmp_path)), "n", ScratchFolders(tmp_path / "scratch")
    )
    with pytest.raises(
        SpawnFailed, match="needs a container engine; this node has none: there is no DOCKER_HOST"
    ):
        spawner.spawn(spec(), None, None)
    await spawner.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    assert addresses({"DOCKER_HOST": "unix:///x"}, 0) == ["unix:///x"]
    assert "unix:///x/y does not answer" in connect(["unix:///x/y"]).facts.why
    gc.collect()  # the package leaves its socket to the collector when nobody listens


def test_limits() -> None:
    limits = container_limits({"STOKER_CONTAINER_MEMORY_MB": "512", "STOKER_CONTAINER_CPUS": "1.5"})
    assert (limits.memory_bytes, limits.cpus, limits.pids) == (512 << 20, 1.5, 4096)
    assert container_limits({}).memory_bytes is None
    assert limits.nproc is not None
    assert limits.nproc <= int(Path("/proc/sys/kernel/pid_max").read_text()), "podman may give no more"
    for value in ("much", "0", "nan", "-1", ""):
        with pytest.raises(CliError, match="STOKER_CONTAINER_MEMORY_MB must be a number from 16 to 16777216"):
            container_limits({"STOKER_CONTAINER_MEMORY_MB": value})


async def test_an_endpoints_credentials_go_with_the_pull(engine: FakeEngine, tmp_path: Path) -> None:
    let_in = RegistryAuth("robot", "swordfish")
    await Images(engine, tmp_path / "i.json").resolve(wanted_by(replace(spec(), registry=let_in)))
    assert engine.let_in == let_in
    assert "swordfish" not in (tmp_path / "i.json").read_text()


def test_how_an_unauthorized_pull_is_explained() -> None:
    robot = RegistryAuth("robot", "swordfish")
    reported = "unauthorized: no entry for robot:swordfish"
    assert explain(reported, None).endswith("; no credentials are named for it (containerRegistryAuthId)")
    assert explain(reported, robot) == (
        "unauthorized: no entry for robot:[password]; the registry does not take the credentials of robot"
    )
    assert explain("manifest unknown", robot) == "manifest unknown"


@pytest.mark.parametrize(
    ("line", "file"),
    [("5:memory:/lib/one", "memory/lib/one/memory.oom_control"), ("0::/lib/one", "lib/one/memory.events")],
)
def test_the_kernels_count_of_what_it_killed_for_its_memory(tmp_path: Path, line: str, file: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"3:cpu:/else\n{line}\n")
    (tmp_path / "cgroup.controllers").touch()
    counting = counter(7, tmp_path, tmp_path)
    assert counting == tmp_path / file
    assert kills(counting) is None, "unknown, not none"
    counting.parent.mkdir(parents=True)
    counting.write_text("under_oom 0\noom_kill 2\n")
    assert kills(counting) == 2
    assert kills(counter(8, tmp_path, tmp_path)) is None


def test_what_the_host_calls_a_folder(tmp_path: Path) -> None:
    folders = host_folders(tmp_path, None, tmp_path / "w", {"STOKER_HOST_DATA_DIR": "/mnt/agent"})
    assert folders.data.path(tmp_path / "scratch" / "w") == "/mnt/agent/scratch/w"
    assert host_folders(tmp_path, tmp_path / "v", tmp_path / "w", {}).volumes == HostFolder(
        tmp_path / "v", tmp_path / "v"
    )
    below = host_folders(tmp_path, None, tmp_path / "weights", {"STOKER_HOST_DATA_DIR": "/mnt/agent"})
    assert below.weights.outside == Path("/mnt/agent/weights")
    elsewhere = host_folders(tmp_path, None, Path("/srv/w"), {"STOKER_HOST_DATA_DIR": "/mnt/agent"})
    assert elsewhere.weights.outside == Path("/srv/w")
    named = host_folders(tmp_path, None, tmp_path / "w", {"STOKER_HOST_WEIGHTS_DIR": "/mnt/w"})
    assert named.weights.outside == Path("/mnt/w")
    with pytest.raises(CliError, match="STOKER_HOST_DATA_DIR must be an absolute path of the engine's host"):
        host_folders(tmp_path, None, tmp_path / "w", {"STOKER_HOST_DATA_DIR": "here"})


def test_a_pod_is_shown_the_hosts_name_of_its_network_volume(tmp_path: Path) -> None:
    images: Any = None
    engine: Any = None
    mapped = HostFolder(tmp_path, Path("/on/the/host"))
    pods = PodContainers(engine, images, "agent-1", (), volumes=mapped)
    assert pods._folder(PodSpec("p1", 1, "RUNNING", "image", volume="shared")) == "/on/the/host/shared"
    assert (tmp_path / "shared").is_dir()
    assert pods._folder(PodSpec("p1", 1, "RUNNING", "image")) == ""
    with pytest.raises(SpawnFailed, match="this node has no volume root"):
        PodContainers(engine, images, "agent-1", ())._folder(
            PodSpec("p1", 1, "RUNNING", "image", volume="shared")
        )


async def test_what_a_runtime_prints_comes_past_the_engine(tmp_path: Path) -> None:
    """By way of the engine it would come when its job is over, and be the next job's."""
    news: asyncio.Queue[Frame] = asyncio.Queue()
    (tmp_path / "door").mkdir()
    listener = FrameListener(tmp_path / "door", asyncio.get_running_loop(), news.put_nowait, pytest.fail)
    log_read, log_write = os.pipe()
    listener.print_to(log_write)
    command = [sys.executable, "-P", "-m", "stoker.worker.runtime", "--connect", f"{tmp_path}/door/{SOCKET}"]
    setup = {
        "handler": f"{HANDLERS}/printing/prints.py:handler",
        "device": None,
        "concurrency": 1,
        "preload": [],
    }
    runtime = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONPATH": str(SOURCE)})
    try:
        listener.send(Frame("setup", setup))
        async with asyncio.timeout(60):
            assert (await news.get()).kind == "ready"
            listener.send(Frame("run", {"job": "j", "attempt": 1, "scratch": str(tmp_path)}, b"{}"))
            while (await news.get()).kind != "done":
                pass
        assert set(os.read(log_read, 1000).splitlines()) == {b"to stdout", b"to stderr"}
        listener.finish()
        assert await asyncio.wait_for(runtime.wait(), 60) is not None
    finally:
        if runtime.returncode is None:
            runtime.kill()
            await runtime.wait()
        os.close(log_read)


async def test_a_pipe_that_no_runtime_came_for_is_closed(tmp_path: Path) -> None:
    (tmp_path / "door").mkdir()
    listener = FrameListener(tmp_path / "door", asyncio.get_running_loop(), pytest.fail, pytest.fail)
    log_read, log_write = os.pipe()
    listener.print_to(log_write)
    listener.finish()
    assert os.read(log_read, 1) == b"", "nobody can write to it any more"
    os.close(log_read)


# ---- an engine that may see other folders, at the agent's start


class Elsewhere:
    """Sees the folders in `seen` alone; `trouble` is what it says instead of an answer."""

    facts = EngineFacts("docker", "28.0.1")

    def __init__(self, *seen: Path, trouble: Exception | None = None) -> None:
        self.seen, self.trouble = seen, trouble
        self.closed = False

    async def remove_all(self, agent: str) -> int:
        if self.trouble is not None:
            raise EngineError("removal is already in progress")
        return 1

    async def mount_problem(self, agent: str, inside: Path, outside: Path) -> str | None:
        if self.trouble is not None:
            raise self.trouble
        return None if outside in self.seen else f"{outside} on the engine's host is not the agent's {inside}"

    async def stop(self) -> None:
        self.closed = True


async def seeing(monkeypatch: pytest.MonkeyPatch, engine: Elsewhere, **arguments: str) -> ContainerEngine:
    monkeypatch.setattr(containers, "connect", lambda _: engine)
    data, volumes = Path("/data"), Path("/volumes")
    return await container_engine("n", {}, host_folders(data, volumes, data / "weights", arguments))


async def test_an_engine_that_sees_the_agents_folders_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Elsewhere(Path("/data"), Path("/volumes"))
    assert await seeing(monkeypatch, here) is here
    mapped = Elsewhere(Path("/host/data"), Path("/host/volumes"))
    named = {"STOKER_HOST_DATA_DIR": "/host/data", "STOKER_HOST_VOLUME_ROOT": "/host/volumes"}
    assert await seeing(monkeypatch, mapped, **named) is mapped


async def test_a_folder_that_was_named_wrong_ends_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Elsewhere(Path("/data"), Path("/volumes"))
    for name in ("STOKER_HOST_DATA_DIR", "STOKER_HOST_VOLUME_ROOT"):
        with pytest.raises(CliError, match=f"{name} is wrong: /else on the engine's host is not the agent's"):
            await seeing(monkeypatch, here, **{name: "/else"})
    assert here.closed


async def test_an_engine_that_sees_others_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for elsewhere, name in (
        (Elsewhere(), "STOKER_HOST_DATA_DIR"),
        (Elsewhere(Path("/data")), "STOKER_HOST_VOLUME_ROOT"),
    ):
        found = await seeing(monkeypatch, elsewhere)
        assert found.facts.name == ""
        assert f"{name} names it, where it has another path there" in found.facts.why
        assert elsewhere.closed


@pytest.mark.parametrize(
    "trouble", [EngineError("no space left on device"), TimeoutError(), OSError(28, "x")]
)
async def test_what_is_not_known_of_an_engine_is_logged_and_it_is_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: Exception
) -> None:
    engine = Elsewhere(trouble=trouble)
    assert await seeing(monkeypatch, engine) is engine
    assert "containers of an earlier agent may be left: removal is already in progress" in caplog.text
    assert "whether the engine sees /data is not known: " in caplog.text
