"""What a container is given: limits of its endpoint, a volume, a scratch folder of its own, GPUs by CDI."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.host.storage.volumes import group
from stoker.agent.interfaces import WorkerExit
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.plan import ContainerLimits, ContainerPlan
from stoker.agent.workers.containers.spawner import HostFolder
from stoker.wire.messages import AttemptKey, Device, LockedWeights, WorkerLimits
from stoker.worker.frames import Frame
from tests.agent.workers.containers.container_host import Host, surely_out_of_memory
from tests.container_engine_here import IMAGE

pytestmark = pytest.mark.slow

SLEEPS = ("python", "-c", "import time; print('runs', flush=True); time.sleep(600)")


THREADS = """
import os, threading, time
for n in range(100):
    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError:
        break
print(n)
os._exit(0)
"""
BURNS = """
import time
since = time.monotonic()
while time.monotonic() - since < 2:
    pass
print(time.process_time() / (time.monotonic() - since))
"""


async def output(worker: Any, value: Any, job: str = "j", scratch: str = "/tmp") -> Any:
    await worker.received("ready")
    fields = {"job": job, "attempt": 1, "scratch": scratch}
    worker.process.send(Frame("run", fields, json.dumps(value).encode()))
    return json.loads((await worker.received("done")).body)


# ---- limits


async def test_the_endpoints_own_limits(host: Any) -> None:
    limits = WorkerLimits(memory_bytes=128 << 20, pids=40, files=512)
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)); bytearray(400 << 20)"

    async def end() -> WorkerExit:
        worker = host.start(kind="protocol", command=("python", "-uc", script), limits=limits)
        return await worker.exited()

    ended = await surely_out_of_memory(end)
    assert ended.log_tail[0] == "(512, 512)"
    assert (ended.status, ended.reason) == (-9, "killed: out of memory (limit 128 MiB)")


async def test_no_more_threads_than_the_endpoint_allows(host: Any) -> None:
    worker = host.start(kind="protocol", command=("python", "-uc", THREADS), limits=WorkerLimits(pids=40))
    ended = await worker.exited()
    (line,) = ended.log_tail
    assert 20 < int(line) < 40, "the engine's init is one of them"


async def test_no_more_of_a_core_than_the_endpoint_allows(host: Any) -> None:
    worker = host.start(kind="protocol", command=("python", "-uc", BURNS), limits=WorkerLimits(cpus=0.1))
    ended = await worker.exited()
    (line,) = ended.log_tail
    assert float(line) < 0.3


# ---- folders


async def test_a_volume_is_the_same_for_all_workers_of_its_name(host: Any) -> None:
    first = host.python("looks_around", "/here", volume="shared")
    assert await output(first, {"write": "a", "folders": ["/runpod-volume"]}) == {"/runpod-volume": ["a"]}
    second = host.python("looks_around", "/here", volume="other")
    assert await output(second, {"folders": ["/runpod-volume"]}) == {"/runpod-volume": []}
    assert (host.folder.parent / "volumes" / "shared" / "a").read_text() == "kept"


async def test_workers_with_users_of_their_own_share_a_volume_by_its_group(
    engine: ContainerEngine, tmp_path: Path
) -> None:
    volumes = tmp_path / "volumes"
    volumes.mkdir()
    options = {"users": WorkerUsers(between=(190_020, 190_023)), "volumes": HostFolder(volumes, volumes)}
    host = Host(engine, tmp_path / "data", limits=ContainerLimits(nproc=4096), **options)
    try:
        for name in ("a", "b"):
            worker = host.python("looks_around", "/here", volume="shared")
            seen = await output(worker, {"write": name, "folders": ["/runpod-volume"]})
            assert name in seen["/runpod-volume"]
        owners = {path.stat().st_uid for path in (volumes / "shared").iterdir()}
        assert owners == {190_020, 190_021}
        assert (volumes / "shared").stat().st_gid == group("shared")
    finally:
        await host.spawner.close()


async def test_a_worker_with_weights_reads_them_and_one_without_sees_none(
    engine: ContainerEngine, tmp_path: Path
) -> None:
    (tmp_path / "weights" / "flux").mkdir(parents=True)
    (tmp_path / "weights" / "flux" / "model.safetensors").touch()
    shown = HostFolder(tmp_path / "weights", tmp_path / "weights")
    host = Host(engine, tmp_path / "data", limits=ContainerLimits(nproc=4096), weights=shown)
    try:
        reading = host.python("reads_weights", "/here", weights=(LockedWeights("flux", "folder"),))
        assert await output(reading, {}) == {
            "folder": "/stoker-weights",
            "flux": ["model.safetensors"],
            "refusal": "Read-only file system",
        }
        assert await output(host.python("reads_weights", "/here"), {}) == {"folder": ""}
    finally:
        await host.spawner.close()


async def test_a_worker_sees_no_other_workers_scratch(host: Any) -> None:
    own = host.python("looks_around", "/here")
    mine, other = AttemptKey("mine", 1), AttemptKey("secret", 1)
    scratch = host.scratch.prepare(mine, "w1")
    os.mkdir(host.scratch.prepare(other, "w2"))  # as a worker of the agent's own user does
    root = str(host.folder / "scratch")
    found = await output(own, {"folders": [root, os.path.dirname(scratch)]}, scratch=scratch)
    assert found == {root: ["w1.worker"], os.path.dirname(scratch): ["mine.1"]}
    host.scratch.remove(mine)
    own.process.send(Frame("stop"))
    await own.exited()
    await asyncio.sleep(0)
    assert os.listdir(root) == ["secret.1"]


# ---- GPUs: a device of a CDI specification that is no GPU


GPU = Device("GPU-1", "gpu", "H100")
NODE = {"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 3}
GIVES = {"deviceNodes": [NODE], "env": ["OF_THE_GPU=yes"]}


@pytest.fixture
def cdi(address: str, shared_engine: ContainerEngine) -> Callable[..., None]:
    if not shared_engine.facts.cdi:
        pytest.skip(f"{shared_engine.facts.summary} brings no GPUs by CDI; docker does from version 25 on")
    folder = Path(address.removeprefix("unix://")).parent / "cdi"

    def write(**edits: Any) -> None:
        device = {"name": "GPU-1", "containerEdits": edits}
        spec = {"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": [device]}
        (folder / "gpu.json").write_text(json.dumps(spec))

    return write


async def test_a_gpu_comes_with_its_device_its_environment_and_its_files(
    host: Any, cdi: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "library").write_text("of the driver")
    mount = {"hostPath": str(tmp_path / "library"), "containerPath": "/library", "options": ["ro", "bind"]}
    cdi(**GIVES, mounts=[mount])
    script = (
        "import os, time; print(os.environ['OF_THE_GPU'], os.environ.get('CUDA_VISIBLE_DEVICES'),"
        " open('/library').read(), os.path.exists('/dev/nvidia0'), flush=True); time.sleep(600)"
    )
    worker = host.start(GPU, devices=("GPU-1",), kind="protocol", command=("python", "-c", script))
    await worker.until(lambda: host.lines or worker.exit)
    assert host.lines == ["yes None of the driver True"], worker.exit
    assert worker.exit is None
    worker.process.kill()
    assert (await worker.exited()).reason == "killed by the agent"


async def test_a_worker_without_the_gpu_that_it_was_promised_is_killed(
    host: Any, cdi: Callable[..., None]
) -> None:
    cdi(env=["OF_THE_GPU=no"])
    worker = host.start(GPU, devices=("GPU-1",), kind="protocol", command=SLEEPS)
    ended = await worker.exited()
    assert (ended.status, ended.reason) == (-9, "it got no GPU, and was killed")


async def test_a_gpu_that_no_specification_names(host: Any, cdi: Callable[..., None]) -> None:
    cdi(**GIVES)
    reason = (await host.start(GPU, devices=("GPU-9",), kind="protocol", command=SLEEPS).exited()).reason
    assert reason.startswith("the container of worker w1 cannot be run: ")
    assert "nvidia.com/gpu=GPU-9" in reason


async def test_an_engine_that_brings_no_gpus_is_not_called(host: Any) -> None:
    if host.engine.facts.cdi:
        pytest.skip(f"{host.engine.facts.summary} brings them")
    with pytest.raises(
        SpawnFailed, match=r"which needs docker 25 or newer with CDI switched on; this node has"
    ):
        host.start(GPU, devices=("GPU-1",), kind="protocol", command=SLEEPS)


async def test_half_of_the_gpus_is_not_enough(host: Any, cdi: Callable[..., None]) -> None:
    cdi(**GIVES)
    made = ContainerPlan(
        IMAGE, {}, {}, ContainerLimits(nproc=4096), command=SLEEPS, devices=("nvidia.com/gpu=GPU-1",)
    )
    container = await host.engine.create(made, "stoker-gpu")
    log_read, log_write = os.pipe()
    try:
        ended = await host.engine.start(container, log_write)
        assert await host.engine.missing_gpu(container, 1) is None
        assert await host.engine.missing_gpu(container, 2) == "it got 1 of 2 GPUs"
        await host.engine.signal(container, "SIGKILL")
        assert (await ended).code == 137
        assert await host.engine.missing_gpu(container, 2) is None, "it has ended"
    finally:
        os.close(log_read)
        await host.engine.remove(container)


# ---- what the engine's host calls the agent's folders


async def test_whether_the_engine_sees_the_agents_folder(host: Any, tmp_path: Path) -> None:
    assert await host.engine.mount_problem("agent-1", host.folder, host.folder) is None
    elsewhere = await host.engine.mount_problem("agent-1", host.folder, tmp_path)
    assert elsewhere == f"{tmp_path} on the engine's host is not the agent's {host.folder}"
    nowhere = await host.engine.mount_problem("agent-1", host.folder, tmp_path / "none")
    assert nowhere is not None
    assert str(tmp_path / "none") in nowhere
    assert [path.name for path in host.folder.iterdir() if path.name.startswith("probe")] == []
