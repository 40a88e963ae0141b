"""An agent and a plane in one process. A device is unhealthy, work moves, and waiting jobs show why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from stoker.agent.host.devices.health import Answered, Lost, Missed
from stoker.agent.host.storage.source_folders import SourceFolders
from stoker.agent.node import Agent, AgentParts, AgentSettings
from stoker.control.rules.job_states import JobState
from stoker.control.rules.submissions import Submission
from stoker.testing.fake_host import FakeSampler, MemoryScratch
from stoker.testing.fake_objects import FakeObjects
from stoker.testing.fake_spawner import FakeSpawner
from stoker.testing.memory_disk import MemoryDisk
from stoker.testing.memory_stream import memory_pair
from stoker.wire.messages import Device, DeviceSample, HeldWorker
from stoker.wire.streams import AgentStream
from tests.control.plane_world import World, endpoint, story, world

GPUS = tuple(Device(f"GPU-{n}", "gpu", "H200", n) for n in range(2))
XID = "Xid 79: the GPU has fallen off the bus"


class Host:
    """An agent with fakes around it, connected with the plane. `stream` is its present one."""

    def __init__(self, w: World, tasks: asyncio.TaskGroup, devices: tuple[Device, ...]) -> None:
        self._w = w
        self._tasks = tasks
        self.sampler = FakeSampler(devices)
        self.spawner = FakeSpawner()
        self.stream: AgentStream
        self.agent = Agent(
            AgentSettings("node-1", "host"),
            AgentParts(
                sources=SourceFolders(Path("/nowhere")),
                connect=self._connect,
                spawner=self.spawner,
                objects=FakeObjects(),
                sampler=self.sampler,
                scratch=MemoryScratch(),
                outbox_disk=MemoryDisk(),
                rng=Random(1),
                keep_credential=w.keep,
            ),
        )

    async def _connect(self) -> AgentStream:
        self.stream, theirs = memory_pair()
        brought = self._w.brought_by("node-1")
        self._tasks.create_task(self._w.plane.nodes.serve(theirs, "test", brought))
        return self.stream

    def on(self) -> list[str]:
        """The devices that workers run on now."""
        return sorted(process.spec.devices[0] for process in self.spawner.processes)


@asynccontextmanager
async def hosted(devices: tuple[Device, ...] = GPUS, **fields: object) -> AsyncIterator[tuple[World, Host]]:
    async with world(endpoint(**fields)) as (w, tasks):
        host = Host(w, tasks, devices)
        running = tasks.create_task(host.agent.run())
        await asyncio.sleep(1)
        yield w, host
        host.agent.stop()
        await running


async def submit(w: World, script: bytes) -> str:
    return (await w.plane.commands.submit(w.echo, Submission(script), sync=False)).id


async def until_runs_on(host: Host, *devices: str) -> None:
    async with asyncio.timeout(100):
        while host.on() != list(devices) or not host.agent.attempts.held():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@story
async def test_an_xid_moves_the_work_to_another_device() -> None:
    async with hosted() as (w, host):
        job = await submit(w, b'{"run_s": 30}')
        await until_runs_on(host, "GPU-0")
        before = w.loop.time()
        host.sampler.report_xid("GPU-0", 79)
        await until_runs_on(host, "GPU-1")
        assert w.loop.time() - before < 3
        view = await w.plane.queries.wait(w.echo, job, 100)
        assert (view.state, view.attempt, view.retries) == (JobState.COMPLETED, 2, 1)
        assert dict((await w.plane.queries.health(w.echo)).unhealthy_devices) == {"GPU-0": XID}
        assert "GPU-0" not in host.on()


@story
async def test_a_job_says_that_its_device_is_unhealthy_when_there_is_no_other() -> None:
    async with hosted(GPUS[:1]) as (w, host):
        host.sampler.report_xid("GPU-0", 79)
        job = await submit(w, b"{}")
        await asyncio.sleep(3)
        view = await w.plane.queries.view(w.echo, job)
        assert view.reason == (
            "throttled: no node has a free device: node node-1 has none free; "
            f"device GPU-0 is out of placement: {XID}"
        )
        assert (await w.plane.queries.health(w.echo)).throttled == 1
        assert not host.spawner.spawned


@story
async def test_a_job_that_waits_alongside_busy_workers_says_it_too() -> None:
    async with hosted(workers_max=2) as (w, host):
        await submit(w, b'{"run_s": 100}')
        await until_runs_on(host, "GPU-0")
        host.sampler.report_xid("GPU-1", 48)
        waiting = await submit(w, b"{}")
        await asyncio.sleep(3)
        reason = (await w.plane.queries.view(w.echo, waiting)).reason or ""
        assert reason.startswith("every worker is busy; throttled: no node has a free device: ")
        assert "node node-1 has none free; device GPU-1 is out of placement" in reason
        assert host.on() == ["GPU-0"]


@story
async def test_a_device_that_answers_again_is_used_again() -> None:
    async with hosted(GPUS[:1]) as (w, host):
        host.sampler.health["GPU-0"] = Missed()
        await asyncio.sleep(30)
        job = await submit(w, b"{}")
        await asyncio.sleep(3)
        assert "does not report its state" in ((await w.plane.queries.view(w.echo, job)).reason or "")
        del host.sampler.health["GPU-0"]
        assert (await w.plane.queries.wait(w.echo, job, 60)).state is JobState.COMPLETED
        assert not (await w.plane.queries.health(w.echo)).unhealthy_devices


@story
async def test_what_became_unhealthy_while_control_was_away_is_known_with_the_hello() -> None:
    async with hosted(workers_min=1) as (w, host):
        await asyncio.sleep(3)
        assert host.on() == ["GPU-0"]
        host.stream.end("cut")
        host.sampler.health["GPU-0"] = Lost("the GPU is lost")
        host.sampler.report_xid("GPU-0", 79)
        await asyncio.sleep(3)
        assert host.on() == ["GPU-1"]
        workers = w.plane.cluster.of_endpoint("echo")
        assert [worker.devices for worker in workers] == [("GPU-1",)]


@story
async def test_a_worker_that_is_held_on_an_unhealthy_device_is_not_kept() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        held = HeldWorker("w1", "echo", 1, "ready", ("CPU-0",))
        agent = w.agent()
        await agent.connect(tasks, workers=[held], samples=[DeviceSample("CPU-0", ill="lost")])
        await asyncio.sleep(5)
        assert w.plane.dispatch.reserve(["echo"]) == []
        assert not agent.specs
        assert (await w.plane.queries.health(w.echo)).throttled == 1


@story
async def test_memory_that_a_kill_left_keeps_the_device_out() -> None:
    async with hosted(GPUS[:1]) as (w, host):
        job = await submit(w, b'{"run_s": 500, "ignore_cancel": true, "ignore_term": true}')
        await until_runs_on(host, "GPU-0")
        host.sampler.memory["GPU-0"] = (12 << 30) + (300 << 20)
        await w.plane.commands.cancel(w.echo, job)
        waiting = await submit(w, b"{}")
        await asyncio.sleep(30)
        reason = (await w.plane.queries.view(w.echo, waiting)).reason or ""
        assert reason.endswith(
            "device GPU-0 is out of placement: 12.3 GiB still in use after its worker ended"
        )
        host.sampler.memory["GPU-0"] = 1
        assert (await w.plane.queries.wait(w.echo, waiting, 60)).state is JobState.COMPLETED


@story
async def test_a_reset_that_is_due_lets_the_job_end_and_places_no_other() -> None:
    async with hosted() as (w, host):
        first = await submit(w, b'{"run_s": 30}')
        await until_runs_on(host, "GPU-0")
        host.sampler.health["GPU-0"] = Answered(remap_pending=True)
        await asyncio.sleep(10)
        second = await submit(w, b"{}")
        assert (await w.plane.queries.wait(w.echo, second, 10)).state is JobState.COMPLETED
        view = await w.plane.queries.wait(w.echo, first, 60)
        assert (view.state, view.attempt) == (JobState.COMPLETED, 1)
        await asyncio.sleep(10)
        assert "GPU-0" not in host.on()
