"""A node that lies. It joins with a token of its own, comes back with the credential that it got, over real
gRPC, and says every message of the contract about things that are not its own.

    python tests/rogue_node.py HOST:PORT TOKEN      says the whole table to a control plane in the clear

`LIES` is the table: a message and a field that names a thing, and what is said there. `fields_that_name`
finds them in the contract, so a message that comes new has no row, and the test fails until it has one.
"""

from __future__ import annotations

import asyncio
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from stoker.agent.link.grpc_stream import GrpcAgentStream, connect
from stoker.wire.messages import (
    PROTOCOL,
    Artifact,
    AttemptKey,
    Beat,
    Chunk,
    Device,
    DeviceSample,
    FromAgent,
    FromControl,
    HeldAttempt,
    HeldPod,
    HeldWorker,
    Hello,
    KeptAsk,
    LogLines,
    Outcome,
    PodState,
    Progress,
    Ref,
    Refused,
    Released,
    Report,
    Save,
    SignAsk,
    StreamHello,
    Uploading,
    Usage,
    VolumeUsed,
    Wanted,
    WorkerState,
)
from stoker.wire.streams import StreamEnded

NAMES = {"job", "worker", "pod", "volume", "owner", "endpoint", "devices", "uuid", "key", "node", "slots"}
"""Fields that name a thing which control gave to somebody, or say how much of it there is."""

OWN = {(Hello, "node"), (Hello, "devices"), (Device, "uuid")}
"""What a node tells of itself."""


@dataclass(frozen=True)
class Others:
    """Things of another node: a ready worker, an attempt that it runs, and where that uploads."""

    node: str
    session: int
    worker: str
    endpoint: str
    version: int
    device: str
    attempt: AttemptKey
    prefix: str
    pod: str
    volume: str
    now_ms: int


def _done(o: Others, **fields: Any) -> Outcome:
    return Outcome(o.attempt.job, o.attempt.attempt, o.worker, "completed", b'{"stolen":true}', **fields)


def _usage(o: Others, **fields: Any) -> Usage:
    began, ended = o.now_ms - 3_600_000, o.now_ms
    known = {"endpoint": o.endpoint, "version": o.version, "devices": (o.device,)}
    return Usage(o.worker, "boot", 1, "worker", "running", began, ended, **known | fields)


def _put(o: Others) -> Wanted:
    return Wanted("put", f"{o.prefix}output.json", 1, sha256="0" * 64)


Lie = Callable[[Others], Any]
"""A report's body; or a Beat, what a Hello holds, or LogLines."""

LIES: Mapping[tuple[type[Any], str], Lie] = {
    (Progress, "job"): lambda o: Progress(o.attempt.job, o.attempt.attempt, b'"forged"'),
    (Chunk, "job"): lambda o: Chunk(o.attempt.job, o.attempt.attempt, 0, b'"forged"'),
    (Save, "job"): lambda o: Save(o.attempt.job, o.attempt.attempt, 0, 0, b"forged"),
    (Uploading, "job"): lambda o: Uploading(o.attempt.job, o.attempt.attempt),
    (Released, "job"): lambda o: Released(o.attempt.job, o.attempt.attempt),
    (Refused, "job"): lambda o: Refused(o.attempt.job, o.attempt.attempt, "it is full"),
    (Outcome, "job"): _done,
    (Outcome, "worker"): lambda o: _done(o, retryable=True),
    (Ref, "key"): lambda o: _done(o, output_ref=Ref(f"{o.prefix}output.json", 1, "ab")),
    (Artifact, "key"): lambda o: _done(o, artifacts=(Artifact(f"{o.prefix}0-a.png", 1, "ab", "image/png"),)),
    (WorkerState, "worker"): lambda o: WorkerState(o.worker, o.endpoint, o.version, "gone"),
    (WorkerState, "endpoint"): lambda o: WorkerState("w-rogue", o.endpoint, o.version, "ready"),
    (WorkerState, "slots"): lambda o: WorkerState(o.worker, o.endpoint, o.version, "unhealthy", slots=1000),
    (PodState, "pod"): lambda o: PodState(o.pod, 1, 0, "gone", "it was taken away"),
    (VolumeUsed, "volume"): lambda o: VolumeUsed(o.volume, 1 << 40, gone=True),
    (Usage, "owner"): _usage,
    (Usage, "endpoint"): lambda o: _usage(o, endpoint="nobodys"),
    (Usage, "devices"): lambda o: _usage(o, devices=(o.device,) * 8),
    (DeviceSample, "uuid"): lambda o: Beat(1, (DeviceSample(o.device, ill="it burns"),)),
    (HeldWorker, "worker"): lambda o: HeldWorker(o.worker, o.endpoint, o.version, "ready", (o.device,)),
    (HeldWorker, "endpoint"): lambda o: HeldWorker("w-rogue", o.endpoint, o.version, "ready"),
    (HeldWorker, "slots"): lambda o: HeldWorker("w-rogue", o.endpoint, o.version, "ready", slots=1000),
    (HeldWorker, "devices"): lambda o: HeldWorker("w-rogue", o.endpoint, o.version, "ready", (o.device,) * 9),
    (HeldAttempt, "job"): lambda o: HeldAttempt(o.attempt.job, o.attempt.attempt, "w-rogue", "running"),
    (HeldAttempt, "worker"): lambda o: HeldAttempt("a-job", 1, o.worker, "running"),
    (HeldPod, "pod"): lambda o: HeldPod(o.pod, 1, 0, "exited"),
    (SignAsk, "job"): lambda o: SignAsk(1, o.attempt.job, o.attempt.attempt, (_put(o),)),
    (KeptAsk, "job"): lambda o: KeptAsk(1, o.attempt.job, o.attempt.attempt, 0, 1),
    (Wanted, "key"): lambda o: SignAsk(1, "a-job", 1, (_put(o),)),
    (StreamHello, "node"): lambda o: LogLines(StreamHello(o.node, o.session)),
    (LogLines, "job"): lambda o: LogLines(None, o.attempt.job, o.attempt.attempt, 0, ("forged",), over=True),
}


def fields_that_name(*roots: type[Any]) -> Iterator[tuple[type[Any], str]]:
    """Every field of these messages, and of what they hold, that names a thing."""
    seen: set[type[Any]] = set()
    todo: list[Any] = list(roots)
    while todo:
        kind = todo.pop()
        if not (isinstance(kind, type) and issubclass(kind, Struct)):
            todo += typing.get_args(kind)
        elif kind not in seen:
            seen.add(kind)
            todo += typing.get_type_hints(kind).values()
            yield from ((kind, name) for name in kind.__struct_fields__ if name in NAMES)


class RogueNode:
    """One node of a stranger's. `token` is its credential once it has joined. `assigned` counts the jobs that
    it was given."""

    def __init__(self, target: str, token: str, node: str = "rogue") -> None:
        self.target, self.token, self.node = target, token, node
        self.stream: GrpcAgentStream
        self.session = 0
        self.assigned = 0
        self._number = 0
        self._beat = 1

    def hello(self, **held: Any) -> Hello:
        devices = (Device("GPU-rogue", "gpu", "NVIDIA H200"),)
        return Hello(PROTOCOL, self.node, self.node, "boot", "0", devices, {}, **held)

    async def join(self, hello: Hello | None = None) -> None:
        """Raises StreamEnded where control does not take it in."""
        self._number, self._beat = 0, 1
        message = await self._greet(hello or self.hello())
        if message.credential is not None:
            self.token = message.credential
            await self.leave()
            message = await self._greet(hello or self.hello())
        if message.welcome is None:
            raise StreamEnded(str(message.refusal))
        self.session = message.welcome.session
        self.assigned += len(message.assigns)

    async def _greet(self, hello: Hello) -> FromControl:
        self.stream = await connect(self.target, self.token)
        await self.stream.send(FromAgent(hello=hello))
        return await self.stream.receive()

    async def say(self, lie: Any, times: int = 3) -> None:
        """Says it so often, and returns when control has dealt with it."""
        match lie:
            case HeldWorker() | HeldAttempt() | HeldPod():
                kind = {HeldWorker: "workers", HeldAttempt: "attempts", HeldPod: "pods"}[type(lie)]
                await self.leave()
                await self.join(self.hello(**{kind: (lie,) * times}))
            case LogLines():
                await self._prints(lie, times)
            case Beat():
                for _ in range(times):
                    await self.stream.send(FromAgent(beat=lie))
            case SignAsk():
                for _ in range(times):
                    await self.stream.send(FromAgent(asks=(lie,)))
            case KeptAsk():
                for _ in range(times):
                    await self.stream.send(FromAgent(kept_asks=(lie,)))
            case _:
                for _ in range(times):
                    await self._report(lie)
        await self.settle()

    async def settle(self) -> None:
        """Waits until control has dealt with all that was said: then it answers a beat."""
        self._beat += 1
        await self.stream.send(FromAgent(beat=Beat(self._beat)))
        reported = 0
        while reported < self._beat:
            message = await self.stream.receive()
            self.assigned += len(message.assigns)
            assert not any(answer.signed for answer in message.answers)
            assert message.kept is None or not (message.kept.values or message.kept.ref)
            reported = message.ack.beat if message.ack is not None else reported

    async def _report(self, body: Any) -> None:
        self._number += 1
        await self.stream.send(FromAgent(reports=(Report(self._number, body),)))

    async def _prints(self, lie: LogLines, times: int) -> None:
        """Of another's stream of logs; or on its own, of another's attempt."""
        logs = await self.stream.open_logs()
        try:
            await logs.send(lie if lie.hello else LogLines(StreamHello(self.node, self.session)))
            for _ in range(times):
                await logs.send(lie)
        except StreamEnded:
            return
        logs.end()
        await asyncio.gather(*self.stream._further)  # until all is written, and control has ended it

    async def leave(self) -> None:
        self.stream.end("the rogue leaves")
        await self.stream.closed()


async def _main(target: str, token: str) -> None:
    """What is said names nothing that is there: a control plane with things of others is the tests' part."""
    others = Others("n", 1, "w", "e", 1, "d", AttemptKey("j", 1), "e/j/1/", "p", "v", 0)
    rogue = RogueNode(target, token)
    for (kind, field), lie in LIES.items():
        await rogue.join()
        await rogue.say(lie(others))
        await rogue.leave()
        print(f"{kind.__name__}.{field}: said three times, {rogue.assigned} jobs came")


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
