"""What is created, what is refused, and why it ended: for any worker, on any node."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.agent.workers.containers.plan import (
    Bind,
    ContainerExit,
    ContainerLimits,
    EngineFacts,
    HostPaths,
    describe_container_exit,
    facts,
    major,
    plan,
    refusal,
)
from stoker.agent.workers.containers.requests import docker_request, podman_request
from stoker.wire.messages import Device, RegistryAuth, WorkerLimits, WorkerSpec

GPU = Device("GPU-1", "gpu", "H100")
CPU = Device("cpu", "cpu", "CPU")
PATHS = HostPaths(
    "node", "/host/c/w1", "/host/c/package", "/data/s/w1", "/host/s/w1", "/host/v/shared", (7, 8), (9,)
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
ENVIRONMENTS = st.dictionaries(NAMES, st.text(st.characters(exclude_characters="\0"), max_size=8), max_size=4)
SPECS = st.builds(
    WorkerSpec,
    worker=NAMES,
    endpoint=NAMES,
    version=st.integers(1, 9),
    handler=st.just("/app/h.py:handler"),
    devices=st.just(("GPU-1",)),
    env=ENVIRONMENTS,
    kind=st.sampled_from(["python", "protocol"]),
    command=st.lists(st.text(min_size=1, max_size=8), max_size=3).map(tuple),
    image=st.just("a/b:1"),
    volume=st.sampled_from(["", "shared"]),
    registry=st.none() | st.just(RegistryAuth("robot", "swordfish")),
    limits=st.none()
    | st.builds(
        WorkerLimits,
        memory_bytes=st.none() | st.just(5 << 30),
        cpus=st.none() | st.just(1.5),
        pids=st.none() | st.just(99),
        files=st.none() | st.just(2048),
    ),
)
LIMITS = st.builds(
    ContainerLimits,
    memory_bytes=st.none() | st.integers(1 << 24, 1 << 40),
    cpus=st.none() | st.floats(0.01, 512),
    pids=st.integers(8, 1 << 20),
    nofile=st.integers(1024, 65536),
    nproc=st.none() | st.integers(64, 4096),
)
DEVICES = st.sampled_from([None, CPU, GPU])


def environment(request: dict) -> dict[str, str]:
    return dict(line.split("=", 1) for line in request["Env"])


def requests_for(
    spec: WorkerSpec, device: Device | None, added: dict, limits: ContainerLimits
) -> tuple[dict, dict]:
    """Of docker, and of podman."""
    made = plan(spec, device, "sha256:1", added, PATHS, limits)
    return docker_request(made), podman_request(made, "name", None)


@pytest.mark.parametrize(
    ("kind", "entrypoint", "requested"),
    [
        ("protocol", ("/bin/sh", "-c"), ("/bin/sh", "-c")),
        ("protocol", (), None),
        ("python", (), ("python", "-P")),
    ],
)
def test_an_entrypoint_takes_the_images_place(
    kind: str, entrypoint: tuple[str, ...], requested: tuple[str, ...] | None
) -> None:
    spec = WorkerSpec("w", "e", 1, "/app/h.py:handler", kind=kind, entrypoint=entrypoint, image="a/b:1")
    made = plan(spec, CPU, "sha256:1", {}, PATHS, ContainerLimits(pids=8, nofile=1024))
    assert made.entrypoint == requested if requested is None else made.entrypoint[:2] == requested


@given(SPECS, DEVICES, ENVIRONMENTS, LIMITS)
def test_of_any_worker(spec: WorkerSpec, device: Device | None, added: dict, limits: ContainerLimits) -> None:
    request, podman = requests_for(spec, device, added, limits)
    host, held = request["HostConfig"], limits.of(spec.limits)
    assert request["Image"] == "sha256:1", "never the name: that may mean another by now"
    assert request["Labels"] == {"stoker.agent": "node", "stoker.worker": spec.worker}
    assert len(environment(request)) == len(request["Env"]), "each name once"
    assert host["Init"] is True
    assert "Privileged" not in host
    assert host.get("Memory") == host.get("MemorySwap") == held.memory_bytes
    assert (host["PidsLimit"], "NanoCpus" in host) == (held.pids, held.cpus is not None)
    devices = [one for wanted in host.get("DeviceRequests", ()) for one in wanted["DeviceIDs"]]
    assert devices == (["nvidia.com/gpu=GPU-1"] if device is GPU else [])
    assert (environment(request).get("CUDA_VISIBLE_DEVICES") == "") or device is GPU
    assert environment(request)["NVIDIA_VISIBLE_DEVICES"] == "void"  # whatever the default runtime brings
    assert "swordfish" not in f"{request} {podman} {spec}", "a password is for the registry alone"


@given(SPECS, DEVICES, ENVIRONMENTS, LIMITS)
def test_both_engines_receive_the_same_request(
    spec: WorkerSpec, device: Device | None, added: dict, limits: ContainerLimits
) -> None:
    docker, podman = requests_for(spec, device, added, limits)
    host, resources = docker["HostConfig"], podman["resource_limits"]
    assert (podman["image"], podman["env"], podman["labels"]) == (
        docker["Image"],
        environment(docker),
        docker["Labels"],
    )
    assert list(podman.get("entrypoint", ())) == docker.get("Entrypoint", [])
    assert list(podman.get("command", ())) == docker.get("Cmd", [])
    assert (podman.get("user"), podman["groups"]) == (docker.get("User"), host.get("GroupAdd", []))
    binds = [(one["Source"], one["Target"], one["ReadOnly"]) for one in host.get("Mounts", ())]
    assert binds == [(one["source"], one["destination"], "ro" in one["options"]) for one in podman["mounts"]]
    assert resources["pids"]["limit"] == host["PidsLimit"]
    assert resources.get("memory", {}).get("limit") == host.get("Memory")
    assert ("cpu" in resources) == ("NanoCpus" in host)
    files = next(one["hard"] for one in podman["r_limits"] if one["type"] == "nofile")
    assert files == host["Ulimits"][0]["Hard"]
    requested = [name for one in host.get("DeviceRequests", ()) for name in one["DeviceIDs"]]
    assert [one["path"] for one in podman["devices"]] == requested
    assert (podman["init"], podman["no_new_privileges"]) == (True, True)
    assert podman["netns"] == {"nsmode": host["NetworkMode"]} == {"nsmode": "bridge"}
    assert podman.get("user") == docker.get("User") == "7:8"
    assert podman["cap_drop"] == [f"CAP_{right}" for right in host["CapDrop"]]


@given(SPECS, DEVICES, ENVIRONMENTS, LIMITS)
def test_weights_are_mounted_read_only_and_the_endpoints_own_variable_has_priority(
    spec: WorkerSpec, device: Device | None, added: dict, limits: ContainerLimits
) -> None:
    paths = replace(PATHS, weights="/host/weights")
    made = plan(spec, device, "sha256:1", added, paths, limits)
    assert Bind("/host/weights", "/stoker-weights", read_only=True) in made.binds
    assert made.environment["STOKER_WEIGHTS_DIR"] == "/stoker-weights"
    own = plan(spec, device, "sha256:1", {**added, "STOKER_WEIGHTS_DIR": "/own"}, paths, limits)
    assert own.environment["STOKER_WEIGHTS_DIR"] == "/own"
    without = plan(spec, device, "sha256:1", added, PATHS, limits)
    assert "STOKER_WEIGHTS_DIR" not in without.environment
    assert not any(bind.target == "/stoker-weights" for bind in without.binds)


def test_an_endpoints_limits_come_before_the_nodes() -> None:
    node = ContainerLimits(memory_bytes=1 << 30, cpus=2.0, pids=100, nofile=4096, nproc=7)
    assert node.of(None) == node
    assert node.of(WorkerLimits()) == node
    own = WorkerLimits(memory_bytes=2 << 30, cpus=0.5, pids=50, files=512)
    assert node.of(own) == ContainerLimits(2 << 30, 0.5, 50, 512, 7)
    assert node.of(WorkerLimits(cpus=8.0)) == ContainerLimits(1 << 30, 8.0, 100, 4096, 7)
    own_plan = plan(SPEC, None, "i", {}, PATHS, ContainerLimits(cpus=0.001))
    assert podman_request(own_plan, "n", None)["resource_limits"]["cpu"]["quota"] == 1000, (
        "the least there is"
    )


def test_an_init_is_named_to_podman_where_it_has_none_of_its_own() -> None:
    made = plan(SPEC, None, "i", {}, PATHS, ContainerLimits())
    assert "init_path" not in podman_request(made, "n", None)
    assert podman_request(made, "n", "/usr/bin/tini")["init_path"] == "/usr/bin/tini"


@given(SPECS, DEVICES, ENVIRONMENTS)
def test_what_a_worker_sees(spec: WorkerSpec, device: Device | None, added: dict) -> None:
    request, _ = requests_for(spec, device, added, ContainerLimits())
    mounts = {
        one["Target"]: (one["Source"], one["ReadOnly"]) for one in request["HostConfig"].get("Mounts", ())
    }
    volume = {"/runpod-volume": ("/host/v/shared", False)} if spec.volume else {}
    assert environment(request).get("STOKER_VOLUME_PATH") == ("/runpod-volume" if spec.volume else None)
    if spec.kind == "protocol":
        assert mounts == volume
        assert request.get("Cmd") == (list(spec.command) or None)
        assert "Entrypoint" not in request
        own = {k: v for k, v in added.items() if k not in ("CUDA_VISIBLE_DEVICES", "STOKER_VOLUME_PATH")}
        assert environment(request).items() >= own.items()
        return
    assert mounts == {
        "/stoker": ("/host/c/w1", True),
        "/stoker/package": ("/host/c/package", True),
        "/data/s/w1": ("/host/s/w1", False),
        **volume,
    }
    interpreter = list(spec.command or ("python",))
    runtime = ["-P", "-m", "stoker.worker.runtime", "--connect", "/stoker/frames.sock"]
    assert request["Entrypoint"] == interpreter + runtime
    assert request["User"] == "7:8"
    assert environment(request)["PYTHONPATH"].split(":")[0] == "/stoker/package"
    assert environment(request)["STOKER_IMAGE_ID"] == request["Image"]


SPEC = WorkerSpec("w1", "e", 1, "", image="a:1")


@pytest.mark.parametrize(
    ("engine", "device", "message"),
    [
        (
            EngineFacts(why="no socket"),
            None,
            "image a:1 needs a container engine; this node has none: no socket",
        ),
        (EngineFacts("docker", "20.10.24"), None, None),
        (EngineFacts("docker", "20.10.24"), CPU, None),
        (
            EngineFacts("docker", "20.10.24"),
            GPU,
            "docker 25 or newer with CDI switched on; this node has docker 20.10.24",
        ),
        (EngineFacts("docker", "28.0.1", cdi=True), GPU, None),
        (EngineFacts("podman", "4.3.1", cdi=True), GPU, None),
        (EngineFacts("podman", "3.0.1"), GPU, "podman 4 or newer; this node has podman 3.0.1"),
    ],
)
def test_refusals(engine: EngineFacts, device: Device | None, message: str | None) -> None:
    why = refusal(engine, SPEC.image, device)
    assert (why is None) if message is None else (why is not None and message in why)


def test_what_a_node_reports_of_its_engine() -> None:
    assert facts(EngineFacts("docker", "28.0.1", cdi=True)) == {
        "containers": "docker 28.0.1",
        "containers_cdi": "yes",
    }
    assert facts(EngineFacts(why="no socket"))["containers"] == "none: no socket"
    assert [major(version) for version in ("20.10.24+dfsg1", "28", "dev", "")] == [20, 28, 0, 0]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("ended", "killed", "terminated", "memory", "expected"),
    [
        (ContainerExit(0), None, False, None, (0, "exited with code 0")),
        (ContainerExit(0, oom_killed=True), None, False, None, (0, "exited with code 0")),
        (ContainerExit(7), None, True, None, (7, "exited with code 7")),
        (
            ContainerExit(137, oom_killed=True),
            None,
            False,
            64 * MIB,
            (-9, "killed: out of memory (limit 64 MiB)"),
        ),
        (ContainerExit(137, oom_killed=True), None, False, None, (-9, "killed: out of memory")),
        (ContainerExit(137), None, False, 64 * MIB, (-9, "killed, likely out of memory (limit 64 MiB)")),
        (
            ContainerExit(1, oom_killed=True),
            None,
            False,
            64 * MIB,
            (1, "killed: out of memory (limit 64 MiB)"),
        ),
        (ContainerExit(137), "killed by the agent", False, 64 * MIB, (-9, "killed by the agent")),
        (ContainerExit(143), None, True, None, (-15, "stopped by the agent (SIGTERM)")),
        (ContainerExit(139), None, False, None, (-11, "crashed: segmentation fault (SIGSEGV)")),
        (
            ContainerExit(127, error="no such file"),
            None,
            False,
            None,
            (127, "the container did not run: no such file"),
        ),
    ],
)
def test_ends(
    ended: ContainerExit, killed: str | None, terminated: bool, memory: int | None, expected: object
) -> None:
    assert describe_container_exit(ended, killed, terminated=terminated, memory_bytes=memory) == expected


@given(st.integers(0, 255), st.booleans(), st.none() | st.just("killed by the agent"), st.booleans())
def test_any_end_has_a_description(code: int, oom: bool, killed: str | None, terminated: bool) -> None:
    status, reason = describe_container_exit(
        ContainerExit(code, oom), killed, terminated=terminated, memory_bytes=None
    )
    assert reason
    assert (status < 0) == (128 < code < 128 + signal.NSIG)
