"""Nodes: which there are, what each of their devices is held by, and whether new work goes there.

    connected --its connection ends--> silent --its jobs have waited long enough--> gone --> deleted
        ^------------------------ its agent comes back -------------------------------'
    drained, in any of these: nothing new goes there until it is resumed

A node is not made here: its agent joins with a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from stoker.control.commit import Commits
from stoker.control.errors import BadRequest, NotFound
from stoker.control.floor import Floor, FloorPod, FloorWorker
from stoker.control.placement import takes
from stoker.control.staffing import Staffing
from stoker.control.store.node_records import (
    NodeRecord,
    drained_nodes,
    get_node,
    holds_work,
    list_nodes,
    remove_node,
    set_drained,
)
from stoker.control.store.opening import Conn
from stoker.wire.messages import Device, DeviceSample

State = Literal["connected", "silent", "gone"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker of an endpoint, or a pod, and the part of the device that it takes."""

    share: float
    worker: str = ""
    endpoint: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """`sample` is None while its node is not connected."""

    device: Device
    sample: DeviceSample | None
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class KnownNode:
    """`leaving`: its agent said that it is about to go."""

    record: NodeRecord
    state: State
    leaving: bool
    devices: tuple[HeldDevice, ...]


class NodeBook:
    """`silence_s`: how long the jobs of a node that is not heard of wait for it."""

    def __init__(
        self,
        commits: Commits,
        floor: Floor,
        staffing: Staffing,
        clock: Callable[[], float],
        silence_s: float,
    ) -> None:
        self._commits, self._floor, self._staffing = commits, floor, staffing
        self._clock, self._silence_s = clock, silence_s

    async def load(self) -> None:
        """In line with what is stored meanwhile, and hence a commit."""
        drained = await self._commits.commit(drained_nodes)
        for node in drained ^ self._floor.drained:
            self._staffing.drain(node, drained=node in drained)

    async def list(self, account: str) -> list[KnownNode]:
        records = await self._commits.read(lambda conn: list_nodes(conn, account))
        return [self._known(record) for record in records]

    async def get(self, account: str, node: str) -> KnownNode:
        return self._known(await self._commits.read(lambda conn: _found(conn, account, node)))

    async def drain(self, account: str, node: str, *, drained: bool) -> KnownNode:
        """Idempotent. What is stored holds over restarts of both sides."""

        def note(conn: Conn) -> NodeRecord:
            _found(conn, account, node)
            set_drained(conn, node, drained=drained)
            return _found(conn, account, node)

        record = await self._commits.commit(note)
        self._staffing.drain(node, drained=drained)
        return self._known(record)

    async def delete(self, account: str, node: str) -> None:
        """Only of a node that is gone; if its agent ever comes back, it is a new one."""

        def remove(conn: Conn) -> None:
            record = _found(conn, account, node)
            state = self._state(record)
            if state != "gone":
                raise BadRequest(f"node {node} is {state}: stop its agent, and wait until the node is gone")
            if holds_work(conn, node):
                raise BadRequest(f"node {node} holds a job or a pod still: delete its pods first")
            remove_node(conn, node)

        await self._commits.commit(remove)
        self._staffing.drain(node, drained=False)

    def _state(self, record: NodeRecord) -> State:
        if record.id in self._floor.nodes:
            return "connected"
        return "silent" if self._clock() - record.seen_at <= self._silence_s else "gone"

    def _known(self, record: NodeRecord) -> KnownNode:
        there = self._floor.nodes.get(record.id)
        holders = self._floor.on_node(record.id)
        held = tuple(
            HeldDevice(
                device,
                None if there is None else there.samples.get(device.uuid),
                tuple(
                    _holder(one, takes(device, one.needs, record.facts))
                    for one in holders
                    if device.uuid in one.devices
                ),
            )
            for device in (record.devices if there is None else there.devices)
        )
        return KnownNode(record, self._state(record), there is not None and there.draining, held)


def _holder(one: FloorWorker | FloorPod, share: float) -> Holder:
    if isinstance(one, FloorPod):
        return Holder(share, pod=one.pod)
    return Holder(share, worker=one.worker, endpoint=one.endpoint)


def _found(conn: Conn, account: str, node: str) -> NodeRecord:
    record = get_node(conn, account, node)
    if record is None:
        raise NotFound(f"no node {node!r}")
    return record
