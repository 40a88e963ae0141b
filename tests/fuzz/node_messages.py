"""Fuzzes what agents send to control with atheris: transport messages, the session's rules, and the store.

    make fuzz N=1000000

Each input is cut into transport messages for the stream of a session or of logs. What can be read goes
through `control.rules.nodes.validation`, about one node that was given a few things, and what is valid goes
into a store. A message that cannot be read raises WireError, one that is not accepted InvalidReport; anything
else that is raised is a fault, and its input is kept.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(
    include=["stoker.wire", "stoker.control.rules.nodes.validation", "stoker.control.rules.nodes.hello"]
):
    from stoker.control.rules.nodes.hello import assigned_workers, checked_hello, sampled
    from stoker.wire.codec import Decoder

from stoker.control import store
from stoker.control.nodes.assigned import AssignedToNode
from stoker.control.rules.nodes.validation import AssignedAttempt, InvalidReport, check_reports
from stoker.control.rules.types import Endpoint, EndpointVersion, NewJob, Slot
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.placed import PlacedWorker
from stoker.wire import agent_pb2
from stoker.wire.codec import WRITERS, WireError
from stoker.wire.fragments import FIRST_MAX, REPORTED_MAX
from stoker.wire.messages import (
    Artifact,
    AttemptKey,
    Beat,
    Chunk,
    Device,
    DeviceSample,
    FromAgent,
    Hello,
    LogLines,
    Outcome,
    PodState,
    Progress,
    Ref,
    Refused,
    Released,
    Report,
    ReportBody,
    Span,
    Uploading,
    Usage,
    VolumeUsed,
    WorkerState,
)
from tests.simulation.memory_store import memory_store

MESSAGES = 8
LOGGED_EVERY = 100_000
BEGAN = time.monotonic()
seen: Counter[str] = Counter()


class Node:
    """One that holds a worker and an attempt, in a store that is rolled back after each input."""

    def __init__(self) -> None:
        self.conn = memory_store().writer
        cluster = ClusterState()
        cluster.add_worker(PlacedWorker("w", "e", 1, "n", 1, "ready", devices=("g",), concurrency=2))
        attempts = {AttemptKey("j", 1): AssignedAttempt("e/j/1/", "w")}
        desired = SimpleNamespace(
            pods=SimpleNamespace(is_of=lambda node, pod: pod == "p"),
            volumes=SimpleNamespace(is_deleted=lambda node, volume: False),
        )
        self.assigned = AssignedToNode("n", cluster, desired, attempts)
        self.conn.begin()
        run = EndpointVersion("h.py:h")
        store.put_endpoint(self.conn, Endpoint("e", "default", "e", 1, run), 1.0)
        devices = (Device("g", "gpu", "L4"),)
        self.session = store.open_session(
            self.conn, node="n", boot="b", name="n", devices=devices, facts={}, now=1.0, lease_s=45.0
        )
        job = NewJob("j", "default", "e", 1.0, 1e9, 1000, sync=False, input=b"{}")
        slot = Slot("e", "n", int(self.session), "w", 1)
        store.submit(self.conn, job, [slot], 1.0)
        self.conn.commit()

    def receives(self, message: FromAgent) -> None:
        if message.hello is not None:
            self.greets(message.hello)
        if message.beat is not None:
            sampled(message.beat.samples, {"g"})
        good, rejected = check_reports(message.reports, self.assigned)
        seen["reports believed"] += len(good)
        seen["reports not accepted"] += len(rejected)
        if good:
            self.stores(good)

    def greets(self, hello: Hello) -> None:
        with suppress(InvalidReport):
            assigned_workers(checked_hello(hello).workers, {})
            sampled(hello.samples, {"g"})
            seen["hellos believed"] += 1

    def stores(self, reports: list[Report]) -> None:
        self.conn.begin()
        try:
            store.apply_reports(self.conn, node="n", session=int(self.session), reports=reports, now=2.0)
        finally:
            self.conn.rollback()


node = Node()


def one_input(data: bytes) -> None:
    data_provider = atheris.FuzzedDataProvider(data)
    seen["inputs"] += 1
    if seen["inputs"] % LOGGED_EVERY == 0:
        print(
            f"after {time.monotonic() - BEGAN:.0f} s: " + ", ".join(f"{n} {what}" for what, n in seen.items())
        )
    kind = data_provider.ConsumeIntInRange(0, 2)
    decoder = Decoder(LogLines) if kind == 2 else Decoder(FromAgent, REPORTED_MAX, FIRST_MAX)
    chunks = data_provider.ConsumeIntInRange(1, MESSAGES)
    try:
        for n in range(chunks):
            left = data_provider.remaining_bytes()
            chunk = data_provider.ConsumeBytes(
                left if n == chunks - 1 else data_provider.ConsumeIntInRange(0, left)
            )
            if kind == 1:
                envelope = agent_pb2.FromAgent(fragment=chunk, last_fragment=n == chunks - 1)
                chunk = envelope.SerializeToString()
            whole = decoder.join(chunk)
            if whole is None:
                continue
            message = decoder.read(whole)
            seen["messages read"] += 1
            if isinstance(message, FromAgent):
                node.receives(message)
    except WireError:
        seen["streams broken"] += 1


def seeds() -> list[FromAgent]:
    """One true message of each kind: what is changed a little gets further than what is drawn."""
    value, prefix = b'{"a":1}', "e/j/1/"
    ref = Ref(prefix + "chunk-0.json", 2_000_000, "ab")
    bodies: list[ReportBody] = [
        Progress("j", 1, value),
        Chunk("j", 1, 0, value),
        Chunk("j", 1, 1, b"", ref),
        Uploading("j", 1),
        Released("j", 1),
        Refused("j", 1, "full"),
        Outcome("j", 1, "w", "completed", value, spans=(Span("execution", "device_ms", 7, 0),)),
        Outcome("j", 1, "w", "completed", artifacts=(Artifact(prefix + "0-a.png", 1, "ab", "image/png"),)),
        Outcome("j", 1, "w", "failed", error="it broke", log=("a", "b")),
        WorkerState("w", "e", 1, "ready", slots=2),
        PodState("p", 1, 0, "running"),
        VolumeUsed("v", 1),
        Usage("w", "b", 1, "worker", "running", 1, 2, "e", 1, ("g",)),
    ]
    hello = Hello(1, "n", "n", "b", "0", (Device("g", "gpu", "L4"),), {"a": "b"})
    beat = Beat(1, (DeviceSample("g", power=1.0),))
    reported = [FromAgent(reports=(Report(1, body),)) for body in bodies]
    return [*reported, FromAgent(hello=hello), FromAgent(beat=beat, draining=True)]


def main() -> None:
    """The last argument is the folder of the corpus; the numbers of cuts and of the kind stand at the end."""
    corpus = Path(sys.argv[-1])
    corpus.mkdir(parents=True, exist_ok=True)
    for n, message in enumerate(seeds()):
        data = WRITERS[FromAgent](message).SerializeToString()
        (corpus / f"seed-{n}").write_bytes(data + b"\0\0")
        (corpus / f"seed-joined-{n}").write_bytes(data + b"\0\1")
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
