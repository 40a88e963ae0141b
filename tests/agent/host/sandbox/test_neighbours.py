"""What a handler that looks for it gets at of another endpoint's workers and of the agent: nothing."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.host.sandbox.isolation import Host
from stoker.agent.host.sandbox.probe import probe
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.jobs.reports.outbox_file import OutboxFile
from stoker.agent.workers.containers.plan import EngineFacts
from stoker.agent.workers.containers.spawner import ContainerSpawner, HostFolder, HostFolders
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.agent.workers.zygotes.zygotes import ZygoteSpawner
from stoker.wire.messages import AttemptKey, WorkerSpec
from stoker.worker.frames import Frame
from tests.other_users import SYSTEM_PYTHON, other_users

pytestmark = other_users

HANDLERS = Path(__file__).parents[3] / "handlers"
RANGE = (190_010, 190_019)

OWN_TEMPLATE = f"a signal to {SYSTEM_PYTHON} -P -m stoker.worker.zygote.zygote"
"""Of the same user; who could look into another's would find that one's workers as well."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user can pass into."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        for handler in ("access/spies", "outputs/echo"):
            shutil.copy(HANDLERS / f"{handler}.py", name)
        (Path(name) / "volumes").mkdir()
        (Path(name) / "data").mkdir(mode=0o711)
        yield Path(name)


class Node:
    """Local workers of users of their own, and the folders of an agent."""

    def __init__(self, folder: Path, new_watcher: Any, host: Host) -> None:
        self.folder, self.data, self._new_watcher = folder, folder / "data", new_watcher
        users = WorkerUsers(between=RANGE)
        self.scratch = ScratchFolders(self.data / "scratch", users)
        self.spawner = ZygoteSpawner(LocalSpawner(self.data, python=SYSTEM_PYTHON, users=users, host=host))
        OutboxFile(self.data / "outbox").save(b"")
        engine: Any = _NoEngine()
        self.containers = ContainerSpawner(
            engine, HostFolders(HostFolder(self.data, self.data)), "n", self.scratch, users=users
        )
        (self.data / "containers" / "w9-abcdef").mkdir()

    async def works(self, worker: str, handler: str, job_input: Any, **fields: Any) -> Any:
        """The output of its one job; it lives on."""
        name = f"{self.folder}/{handler}.py:handler"
        spec = WorkerSpec(worker, fields.pop("endpoint", handler), 1, name, **fields)
        watcher = self._new_watcher()
        process = self.spawner.spawn(spec, None, watcher)
        process.send(Frame("setup", {"handler": name, "device": None, "concurrency": 1}))
        await watcher.next("ready")
        scratch = self.scratch.prepare(AttemptKey(worker, 1), worker)
        (Path(scratch) / "secret").touch()
        run = Frame("run", {"job": worker, "attempt": 1, "scratch": scratch}, json.dumps(job_input).encode())
        process.send(run)
        return json.loads((await watcher.next("done")).body)


class _NoEngine:
    facts = EngineFacts("docker", "28.0.1")

    def close(self) -> None:
        pass


@pytest.fixture(params=["volumes are mounted", "volumes are named"])
async def node(request: Any, folder: Path, new_watcher: Any) -> AsyncIterator[Node]:
    host = probe(user_range=RANGE, volume_root=folder / "volumes")
    if request.param == "volumes are named":
        host = Host(
            user_range=RANGE, volume_root=str(folder / "volumes"), no_mounts="x", no_mounts_in_a_fork="x"
        )
    elif host.no_mounts:
        pytest.skip(f"no mount namespace here: {host.no_mounts}")
    made = Node(folder, new_watcher, host)
    yield made
    await made.spawner.close()


@pytest.mark.parametrize("preload", [(), ("json",)])
async def test_a_spy_gets_at_nothing(node: Node, preload: tuple[str, ...]) -> None:
    for n, volume in enumerate(("hers", "")):
        await node.works(f"v{n}", "echo", {}, volume=volume, preload=preload)
        await node.works(f"f{n}", "echo", {}, volume=volume, preload=preload, endpoint=f"other-{n}")
    (node.folder / "volumes" / "hers" / "secret").touch()
    names = [f"{worker}.1" for worker in ("v0", "v1", "f0", "f1")]
    names += ["homes", "scratch", "secret", "containers", "w9-abcdef", "outbox", "hers"]
    for n, volume in enumerate(("mine", "")):
        job_input = {"folders": [str(node.folder / "volumes")], "names": names}
        reported = await node.works(f"s{n}", "spies", job_input, volume=volume, preload=preload)
        mine = f"folder {node.folder}/volumes/mine"
        found = {one for one in reported["found"] if one != mine and not one.startswith(OWN_TEMPLATE)}
        assert found == set()
        assert len(reported["groups"]) == len(volume and [volume]), "of its own volume alone"


async def test_workers_of_one_endpoint_share_its_volume(node: Node) -> None:
    names = {"folders": [str(node.folder / "volumes")], "names": []}
    seen = [
        await node.works(f"s{n}", "spies", names, volume="ours", preload=p)
        for n, p in enumerate([(), ("json",)])
    ]
    assert {len(one["groups"]) for one in seen} == {1}
    assert seen[0]["uid"] != seen[1]["uid"]
    assert all(f"folder {node.folder}/volumes/ours" in one["found"] for one in seen)
