"""What is created, what is refused, and why it ended: for any worker, on any node."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.container_plan import (
    Ended,
    Engine,
    Limits,
    Place,
    create_request,
    ended_words,
    facts,
    major,
    refusal,
)
from stoker.wire.messages import Device, WorkerSpec

GPU = Device("GPU-1", "gpu", "H100")
CPU = Device("cpu", "cpu", "CPU")
PLACE = Place("node", "/data/c/w1", "/data/c/package", "/data/scratch", "/host/scratch", (7, 8))
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
)
LIMITS = st.builds(
    Limits,
    memory=st.none() | st.integers(1 << 24, 1 << 40),
    cpus=st.none() | st.floats(0.01, 512),
    pids=st.integers(8, 1 << 20),
    nofile=st.integers(1024, 65536),
)
DEVICES = st.sampled_from([None, CPU, GPU])


def environment(request: dict) -> dict[str, str]:
    return dict(line.split("=", 1) for line in request["Env"])


@given(SPECS, DEVICES, ENVIRONMENTS, LIMITS)
def test_of_any_worker(spec: WorkerSpec, device: Device | None, added: dict, limits: Limits) -> None:
    request = create_request(spec, device, "sha256:1", added, PLACE, limits)
    host = request["HostConfig"]
    assert request["Image"] == "sha256:1", "never the name: that may mean another by now"
    assert request["Labels"] == {"stoker.agent": "node", "stoker.worker": spec.worker}
    assert len(environment(request)) == len(request["Env"]), "each name once"
    assert host["Init"] is True
    assert "Privileged" not in host
    assert host.get("Memory") == host.get("MemorySwap") == limits.memory
    assert (host["PidsLimit"], "NanoCpus" in host) == (limits.pids, limits.cpus is not None)
    asked = [one for given in host.get("DeviceRequests", ()) for one in given["DeviceIDs"]]
    assert asked == (["nvidia.com/gpu=GPU-1"] if device is GPU else [])
    assert (environment(request).get("CUDA_VISIBLE_DEVICES") == "") or device is GPU


@given(SPECS, DEVICES, ENVIRONMENTS)
def test_a_python_worker_sees_three_folders_and_writes_to_one(
    spec: WorkerSpec, device: Device | None, added: dict
) -> None:
    request = create_request(spec, device, "i", added, PLACE, Limits())
    mounts = {
        one["Target"]: (one["Source"], one["ReadOnly"]) for one in request["HostConfig"].get("Mounts", ())
    }
    if spec.kind == "protocol":
        assert mounts == {}
        assert request.get("Cmd") == (list(spec.command) or None)
        assert "Entrypoint" not in request
        assert (
            environment(request).items()
            >= {k: v for k, v in added.items() if k != "CUDA_VISIBLE_DEVICES"}.items()
        )
        return
    assert mounts == {
        "/stoker": ("/data/c/w1", True),
        "/stoker/package": ("/data/c/package", True),
        "/data/scratch": ("/host/scratch", False),
    }
    interpreter = list(spec.command or ("python",))
    runtime = ["-P", "-m", "stoker.worker.runtime", "--connect", "/stoker/frames.sock"]
    assert request["Entrypoint"] == interpreter + runtime
    assert request["User"] == "7:8"
    assert environment(request)["PYTHONPATH"].split(":")[0] == "/stoker/package"


SPEC = WorkerSpec("w1", "e", 1, "", image="a:1")


@pytest.mark.parametrize(
    ("engine", "device", "words"),
    [
        (Engine(why="no socket"), None, "image a:1 needs a container engine; this node has none: no socket"),
        (Engine("docker", "20.10.24"), None, None),
        (Engine("docker", "20.10.24"), CPU, None),
        (
            Engine("docker", "20.10.24"),
            GPU,
            "docker 25 or newer with CDI switched on; this node has docker 20.10.24",
        ),
        (Engine("docker", "28.0.1", cdi=True), GPU, None),
        (
            Engine("podman", "4.3.1"),
            GPU,
            "GPUs do not come into containers of podman 4.3.1 through this agent",
        ),
    ],
)
def test_refusals(engine: Engine, device: Device | None, words: str | None) -> None:
    why = refusal(engine, SPEC, device)
    assert (why is None) if words is None else (why is not None and words in why)


def test_what_a_node_says_of_its_engine() -> None:
    assert facts(Engine("docker", "28.0.1", cdi=True)) == {
        "containers": "docker 28.0.1",
        "containers_cdi": "yes",
    }
    assert facts(Engine(why="no socket"))["containers"] == "none: no socket"
    assert [major(version) for version in ("20.10.24+dfsg1", "28", "dev", "")] == [20, 28, 0, 0]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("ended", "killed", "terminated", "memory", "expected"),
    [
        (Ended(0), None, False, None, (0, "exited with code 0")),
        (Ended(0, oom_killed=True), None, False, None, (0, "exited with code 0")),
        (Ended(7), None, True, None, (7, "exited with code 7")),
        (Ended(137, oom_killed=True), None, False, 64 * MIB, (-9, "killed: out of memory (limit 64 MiB)")),
        (Ended(137, oom_killed=True), None, False, None, (-9, "killed: out of memory")),
        (Ended(137), None, False, 64 * MIB, (-9, "killed, likely out of memory (limit 64 MiB)")),
        (Ended(1, oom_killed=True), None, False, 64 * MIB, (1, "killed: out of memory (limit 64 MiB)")),
        (Ended(137), "killed by the agent", False, 64 * MIB, (-9, "killed by the agent")),
        (Ended(143), None, True, None, (-15, "stopped by the agent (SIGTERM)")),
        (Ended(139), None, False, None, (-11, "crashed: segmentation fault (SIGSEGV)")),
        (
            Ended(127, error="no such file"),
            None,
            False,
            None,
            (127, "the container did not run: no such file"),
        ),
    ],
)
def test_ends(
    ended: Ended, killed: str | None, terminated: bool, memory: int | None, expected: object
) -> None:
    assert ended_words(ended, killed, terminated=terminated, memory=memory) == expected


@given(st.integers(0, 255), st.booleans(), st.none() | st.just("killed by the agent"), st.booleans())
def test_any_end_has_words(code: int, oom: bool, killed: str | None, terminated: bool) -> None:
    status, reason = ended_words(Ended(code, oom), killed, terminated=terminated, memory=None)
    assert reason
    assert (status < 0) == (128 < code < 128 + signal.NSIG)
