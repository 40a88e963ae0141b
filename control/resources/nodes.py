"""Lists nodes with the holders of their devices; drains, resumes, revokes and deletes them.

    connected --its connection ends--> silent --its jobs were assigned to others--> gone --> deleted
        ^------------------------ its agent connects again --------------------------'
    drained, in any of these: no new work is placed there until it is resumed
    revoked, in any of these: it cannot connect until it joins with a newer join token

Nodes are not created here: an agent joins with a token, and its node is silent until it connects with its
credential.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from stoker.control.context import Context
from stoker.control.errors import BadRequest, NotFound
from stoker.control.nodes.joining import revoke, revoked_nodes
from stoker.control.nodes.sessions import NodeSessions
from stoker.control.nodes.yields import Yields
from stoker.control.rules.nodes.ways import Chosen, choose
from stoker.control.rules.placement import takes
from stoker.control.scheduling.avoidance import Avoided
from stoker.control.scheduling.placed import PlacedPod, PlacedWorker
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store.database.opening import Conn
from stoker.control.store.nodes.joined_nodes import (
    NodeRecord,
    drained_nodes,
    get_node,
    holds_work,
    list_nodes,
    remove_node,
    set_drained,
)
from stoker.wire.messages import Device, DeviceSample

State = Literal["connected", "silent", "gone"]


class Holder(Struct, frozen=True):
    """A worker of an endpoint, or a pod, and the part of the device that it takes."""

    share: float
    worker: str = ""
    endpoint: str = ""
    pod: str = ""


class HeldDevice(Struct, frozen=True):
    """A device, and who holds it. `sample` is None while its node is not connected."""

    device: Device
    sample: DeviceSample | None
    holders: tuple[Holder, ...]


class KnownNode(Struct, frozen=True):
    """A node as an operator sees it. `leaving`: its agent reported that it is shutting down. `reached`: how
    its http workers are reached, if they can be now. `avoided`: the versions of endpoints whose workers did
    not start there, while others are preferred. `workers`, `jobs` and `pods`: how many it has now; jobs are
    those of its workers, requests too."""

    record: NodeRecord
    state: State
    leaving: bool
    devices: tuple[HeldDevice, ...]
    reached: Chosen | None = None
    avoided: tuple[Avoided, ...] = ()
    workers: int = 0
    jobs: int = 0
    pods: int = 0


class NodeFilter(Struct, frozen=True):
    """The nodes of a list. A field that is None or empty does not filter; `after` is the id of a node, which
    all come after."""

    state: State | None = None
    drained: bool | None = None
    search: str = ""
    after: str | None = None
    limit: int | None = None


_ALL = NodeFilter()


class ManagedNodes:
    """The nodes as a resource."""

    def __init__(
        self, context: Context, scheduling: Scheduling, sessions: NodeSessions, yields: Yields
    ) -> None:
        self._commits, self._clock = context.commits, context.clock
        self._silence_s = context.settings.silence_s
        self._cluster, self._scaling = scheduling.cluster, scheduling.scaling
        self._disconnect, self._yields = sessions.disconnect, yields

    async def load(self) -> None:
        """Loads which nodes are drained or revoked; in a commit, so that it is ordered with other changes."""
        drained = await self._commits.commit(drained_nodes)
        for node in drained ^ self._cluster.drained:
            self._scaling.drain(node, drained=node in drained)
        self._disconnect(await self._commits.read(revoked_nodes))

    async def list(self, account: str, asked: NodeFilter = _ALL) -> list[KnownNode]:
        """Lists nodes by name. Raises BadRequest where `after` names none."""

        def wanted(record: NodeRecord) -> bool:
            states, drained = (None, self._state(record)), (None, record.drained)
            return asked.state in states and asked.drained in drained

        def read(conn: Conn) -> tuple[NodeRecord, ...]:
            after = get_node(conn, account, asked.after) if asked.after else None
            if asked.after and after is None:
                raise BadRequest(f"after must be the id of a node that is known; got {asked.after[:100]!r}")
            return list_nodes(
                conn, account, wanted=wanted, search=asked.search, after=after, limit=asked.limit
            )

        return [self._known(record) for record in await self._commits.read(read)]

    async def get(self, account: str, node: str) -> KnownNode:
        return self._known(await self._commits.read(lambda conn: _found(conn, account, node)))

    async def drain(self, account: str, node: str, *, drained: bool, jobs_yield: bool = False) -> KnownNode:
        """Drains or resumes a node. Idempotent; lasts over restarts of control and of the agent.
        `jobs_yield`: the jobs that run there are asked to yield; a restart of control forgets that."""

        def note(conn: Conn) -> NodeRecord:
            _found(conn, account, node)
            set_drained(conn, node, drained=drained)
            return _found(conn, account, node)

        record = await self._commits.commit(note)
        self._scaling.drain(node, drained=drained)
        if jobs_yield:
            self._yields.leave(node, f"node {record.name} is drained")
        elif not drained:
            self._yields.stays(node)
        return self._known(record)

    async def revoke(self, account: str, node: str) -> KnownNode:
        """Makes the node's credential invalid: its session ends, and it can join again only with a join token
        that is created later. Idempotent."""
        now = self._clock()

        def revoked(conn: Conn) -> NodeRecord:
            _found(conn, account, node)
            revoke(conn, node, now)
            return _found(conn, account, node)

        record = await self._commits.commit(revoked)
        self._disconnect([node])
        return self._known(record)

    async def delete(self, account: str, node: str) -> None:
        """Deletes a node that is gone. If its agent joins again, it is a new node."""

        def remove(conn: Conn) -> None:
            record = _found(conn, account, node)
            state = self._state(record)
            if state != "gone":
                raise BadRequest(f"node {node} is {state}: stop its agent, and wait until the node is gone")
            if holds_work(conn, node):
                raise BadRequest(f"node {node} holds a job or a pod still: delete its pods first")
            revoke(conn, node, self._clock())
            remove_node(conn, node)

        await self._commits.commit(remove)
        self._scaling.drain(node, drained=False)
        self._yields.stays(node)

    def _state(self, record: NodeRecord) -> State:
        if record.id in self._cluster.nodes:
            return "connected"
        return "silent" if self._clock() - record.seen_at <= self._silence_s else "gone"

    def _known(self, record: NodeRecord) -> KnownNode:
        connected = self._cluster.nodes.get(record.id)
        holders = self._cluster.on_node(record.id)
        devices = tuple(
            HeldDevice(
                device,
                None if connected is None else connected.samples.get(device.uuid),
                tuple(
                    _holder(one, takes(device, one.needs, record.facts))
                    for one in holders
                    if device.uuid in one.devices
                ),
            )
            for device in (record.devices if connected is None else connected.devices)
        )
        state = self._state(record)
        failing = self._scaling.places.avoidance.now_avoided(self._clock())
        avoided = tuple(one for one in failing if one.node == record.id)
        if connected is None:
            return KnownNode(record, state, leaving=False, devices=devices, avoided=avoided)
        record = replace(record, facts=connected.facts)  # they change while it is connected
        ways = choose(connected.reach, self._clock())
        workers = [one for one in holders if isinstance(one, PlacedWorker)]
        return KnownNode(
            record,
            state,
            connected.draining,
            devices,
            ways[0] if ways else None,
            avoided,
            workers=len(workers),
            jobs=sum(one.jobs for one in workers),
            pods=len(holders) - len(workers),
        )


def _holder(one: PlacedWorker | PlacedPod, share: float) -> Holder:
    if isinstance(one, PlacedPod):
        return Holder(share, pod=one.pod)
    return Holder(share, worker=one.worker, endpoint=one.endpoint)


def _found(conn: Conn, account: str, node: str) -> NodeRecord:
    record = get_node(conn, account, node)
    if record is None:
        raise NotFound(f"no node {node!r}")
    return record
