"""Opens connections to http workers, in the ways that reach their nodes (`control.rules.nodes.ways`).

    worker ──its node──> ways, in order ──the first that answers──> CONNECT worker ──200──> bytes both ways
                           └─ fails: noted; the next                  └─ anything else ──> UpstreamFailed

A node that answers and refuses the worker is not called again in another way: it would answer the same. Why a
way fails is in the log and in the node's record; what the caller reads has no address and no bytes of a node.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TypeAlias

from stoker.control.errors import TooMany
from stoker.control.http.gateway.connections import READ_BYTES
from stoker.control.http.gateway.refusals import UpstreamFailed
from stoker.control.nodes.tunnels import Tunnels
from stoker.control.rules.nodes.ways import NodeGateway, Way, choose
from stoker.control.scheduling.cluster_state import ClusterState, NodeState
from stoker.outbound.keepalive import find_vanished
from stoker.outbound.wait_limits import TUNNELS, Waiter
from stoker.outbound.waits import TooManyWaits
from stoker.wire.tunnel.multiplexer import TooManyConnections

log = logging.getLogger(__name__)

CONNECT_S = TUNNELS.within_s()
FALL_BACK_S = 3.0
"""How long a way may take to answer: the last one that is left, and one that another follows."""

Pair: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial: TypeAlias = Callable[[NodeGateway], Awaitable[Pair]]


async def dial(gateway: NodeGateway) -> Pair:
    """Raises OSError."""
    context = _context(gateway.certificate) if gateway.certificate else None
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port, limit=READ_BYTES, ssl=context)
    find_vanished(writer.get_extra_info("socket"))
    return reader, writer


@lru_cache(maxsize=1024)
def _context(certificate: bytes) -> ssl.SSLContext:
    """Trusts this certificate and no other. Raises ssl.SSLError, an OSError, where it is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # its key was reported, and not its name
    context.load_verify_locations(cadata=certificate)
    return context


class Refused(Exception):
    """The node answered that the worker cannot be reached; the text says why."""


class Reaching:
    """The ways to the http workers of nodes. `dial` opens a connection to a port of an agent."""

    def __init__(
        self, cluster: ClusterState, tunnels: Tunnels, clock: Callable[[], float], dial: Dial = dial
    ) -> None:
        self._cluster, self._tunnels, self._clock = cluster, tunnels, clock
        self._dial = dial

    def can(self, worker: str) -> bool:
        """Returns whether the worker's node can be reached now."""
        node = self._node(worker)
        return node is not None and bool(choose(node.reach, self._clock()))

    async def open(self, worker: str) -> Pair:
        """Returns a new connection to the worker's server. Raises UpstreamFailed."""
        node = self._node(worker)
        ways = () if node is None else choose(node.reach, self._clock())
        why = "its node is gone" if node is None else "there is no way to its node now"
        if ways:
            why = "no way to its node works; the node's record says why"
        for n, chosen in enumerate(ways, 1):
            assert node is not None
            within_s = CONNECT_S if n == len(ways) else FALL_BACK_S
            try:
                pair = await self._try(node, chosen.way, worker, within_s)
            except Refused as refused:
                node.reach = node.reach.worked(chosen.way)
                raise UpstreamFailed(worker, f"cannot be reached: {refused}") from None
            except (OSError, EOFError, asyncio.LimitOverrunError, TooManyConnections) as error:
                self._failed(node, chosen.way, str(error) or f"no answer within {within_s:g} s")
            else:
                node.reach = node.reach.worked(chosen.way)
                return pair
        raise UpstreamFailed(worker, f"cannot be reached: {why}")

    @contextmanager
    def share(self, worker: str, whose: Waiter) -> Iterator[None]:
        """Holds a connection of the caller's share in the node's tunnel during the block, if the node has a
        tunnel. Raises TooMany."""
        node = self._node(worker)
        tunnel = node is not None and node.reach.tunnel_open
        waits = self._tunnels.waits(node.node) if node and tunnel else None
        if waits is None:
            yield
            return
        try:
            slot = waits.take_now(whose)
        except TooManyWaits:
            raise TooMany(
                "this key has its share of the connections to the worker's node; end some, or ask again",
                limit=waits.rule.slots,
                window_s=None,
                retry_after=1,
            ) from None
        with slot:
            yield

    def _node(self, worker: str) -> NodeState | None:
        placed = self._cluster.workers.get(worker)
        return None if placed is None else self._cluster.nodes.get(placed.node)

    def _failed(self, node: NodeState, way: Way, why: str) -> None:
        before = node.reach
        node.reach = before.failed(way, why, self._clock())
        if node.reach is not before:
            log.warning("node %s cannot be reached (%s): %s", node.node, way, why)

    async def _try(self, node: NodeState, way: Way, worker: str, within_s: float) -> Pair:
        async with asyncio.timeout(within_s):
            port = node.reach.ports.get(way)
            reader, writer = self._through_tunnel(node) if port is None else await self._dial(port)
            try:
                await _connect(worker, "" if port is None else port.token, reader, writer)
            except BaseException:
                writer.transport.abort()
                raise
            return reader, writer

    def _through_tunnel(self, node: NodeState) -> Pair:
        tunnel = self._tunnels.of(node.node)
        if tunnel is None:
            raise ConnectionResetError("its tunnel is not there any more")
        return tunnel.connect()


async def _connect(
    worker: str, token: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Opens a connection to the worker. Raises Refused where its node refuses."""
    proof = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"CONNECT {worker} HTTP/1.1\r\n{proof}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    status = head[9:12]
    if status in _WHY:
        raise Refused(_WHY[status])
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ConnectionResetError(f"its node answered {bytes(head[:20])!r}")
    with suppress(OSError):
        await writer.drain()


_WHY = {b"404": "it has ended, or is just ending", b"502": "its server takes no connection"}
