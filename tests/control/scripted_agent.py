"""An agent that does what the test says: the other end of a node's stream, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from stoker.control.plane import Plane
from stoker.testing.memory_stream import MemoryStream, memory_pair
from stoker.wire.messages import (
    PROTOCOL,
    Assign,
    Beat,
    Device,
    DeviceSample,
    DirectGateway,
    FromAgent,
    FromControl,
    GatewayAddress,
    HeldAttempt,
    HeldPod,
    HeldWorker,
    Hello,
    Outcome,
    PodPhase,
    PodSpec,
    PodState,
    Report,
    ReportBody,
    WorkerSpec,
    WorkerState,
)
from stoker.wire.streams import StreamEnded

CPU = Device(uuid="CPU-0", kind="cpu", name="a processor")


class ScriptedAgent:
    """`token` is a join token until the agent has joined, and its credential then, which `kept` has by node
    for whoever starts it again."""

    def __init__(
        self,
        plane: Plane,
        token: str,
        *,
        node: str = "node-1",
        boot: str = "boot-1",
        kept: dict[str, str] | None = None,
    ) -> None:
        self.plane = plane
        self.token = token
        self.kept = {} if kept is None else kept
        self.node = node
        self.boot = boot
        self.peer = "test"
        self.gateway: GatewayAddress | None = None
        self.direct: DirectGateway | None = None
        self.tunnels = False
        self.jobs_ahead = 8
        self.yields = True
        self.number = 0
        self.stream: MemoryStream[FromControl, FromAgent]
        self.serving: asyncio.Task[None]
        self.specs: dict[str, WorkerSpec] = {}
        self.pods: dict[str, PodSpec] = {}
        self.assigns: list[Assign] = []

    async def connect(
        self,
        tasks: asyncio.TaskGroup,
        *,
        protocol: int = PROTOCOL,
        workers: Iterable[HeldWorker] = (),
        attempts: Iterable[HeldAttempt] = (),
        samples: Iterable[DeviceSample] = (),
        devices: Iterable[Device] = (CPU,),
        facts: Mapping[str, str] | None = None,
        pods: Iterable[HeldPod] = (),
        comes_back: bool = True,
    ) -> FromControl:
        """Says Hello, and once more where it joined, if it `comes_back`; returns the answer."""
        hello = Hello(
            protocol=protocol,
            node=self.node,
            name=self.node,
            boot=self.boot,
            agent_version="0",
            devices=tuple(devices),
            facts=facts or {},
            workers=tuple(workers),
            attempts=tuple(attempts),
            samples=tuple(samples),
            pods=tuple(pods),
            gateway=self.gateway,
            direct=self.direct,
            tunnels=self.tunnels,
            jobs_ahead=self.jobs_ahead,
            saves=True,
            yields=self.yields,
        )
        answer = await self.greet(tasks, hello)
        if answer.credential is not None and comes_back:
            self.token = self.kept[self.node] = answer.credential
            await self.cut_off()
            answer = await self.greet(tasks, hello)
        return answer

    async def greet(self, tasks: asyncio.TaskGroup, hello: Hello) -> FromControl:
        self.stream, theirs = memory_pair()
        self.serving = tasks.create_task(self.plane.nodes.serve(theirs, self.peer, self.token))
        await self.stream.send(FromAgent(hello=hello))
        return await self.receive()

    async def receive(self) -> FromControl:
        message = await self.stream.receive()
        self.assigns += message.assigns
        if message.desired is not None:
            self.specs = {spec.worker: spec for spec in message.desired.workers}
            self.pods = {spec.pod: spec for spec in message.desired.pods}
        return message

    async def listen(self, seconds: float) -> None:
        """Hears all that comes in this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self.receive()

    async def cut_off(self) -> str:
        """Why control ended the stream, once it has."""
        try:
            while True:
                await self.receive()
        except StreamEnded as ended:
            await self.serving
            return str(ended)

    async def report(self, *bodies: ReportBody) -> None:
        reports = []
        for body in bodies:
            self.number += 1
            reports.append(Report(self.number, body))
        await self.stream.send(FromAgent(reports=tuple(reports)))

    async def report_pod(self, spec: PodSpec, state: PodPhase, **more: Any) -> None:
        """What became of a pod, in answer to this spec."""
        await self.report(PodState(spec.pod, spec.version, spec.restarts, state, **more))

    async def beat(
        self,
        number: int = 1,
        samples: Iterable[DeviceSample] = (),
        facts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        await self.stream.send(FromAgent(beat=Beat(number, tuple(samples), facts)))

    async def ready_workers(self, count: int = 1) -> list[str]:
        """Waits until so many workers are desired, and reports them ready."""
        while len(self.specs) < count:
            await self.receive()
        for spec in self.specs.values():
            await self.report(WorkerState(spec.worker, spec.endpoint, spec.version, "ready"))
        return sorted(self.specs)

    async def assigned(self) -> Assign:
        while not self.assigns:
            await self.receive()
        return self.assigns.pop(0)

    async def completes(self, assign: Assign, output: bytes = b'{"ok":true}', *, ms: int = 7) -> None:
        """`ms`: how long it ran."""
        await self.report(
            Outcome(assign.job, assign.attempt, assign.worker, "completed", output, execution_ms=ms)
        )

    async def leaves(self) -> None:
        self.stream.end("the agent left")
        try:
            while True:
                await self.stream.receive()
        except StreamEnded:
            await self.serving
