"""Which way a connection to a worker takes, and what is tried when one fails; on virtual time."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from stoker.control.errors import TooMany
from stoker.control.http.gateway.reaching import FALL_BACK_S, Reaching
from stoker.control.http.gateway.refusals import UpstreamFailed
from stoker.control.rules.nodes.ways import NodeGateway, Reach, choose
from stoker.control.scheduling.cluster_state import ClusterState, NodeState
from stoker.control.scheduling.placed import PlacedWorker
from stoker.outbound.wait_limits import TUNNELS, Waiter
from stoker.outbound.waits import Waits
from tests.control.http.gateway.memory_worker import Pipe
from tests.control.plane_world import story

TOKEN = "a-token-of-the-agent"
LOCAL = NodeGateway("127.0.0.1", 20_000, TOKEN)
DIRECT = NodeGateway("10.0.0.7", 8002, TOKEN, b"certificate")


class Node:
    """Answers `answers` in each way; an exception is raised at once, None never answers. `heads` are what
    came, by way."""

    def __init__(self, **answers: bytes | Exception | None) -> None:
        self.answers = answers
        self.heads: list[tuple[str, str]] = []
        self.pipes: list[Pipe] = []
        self.tasks: list[asyncio.Task[None]] = []
        ports = {"local": LOCAL, "direct": DIRECT}
        reach = Reach(
            {way: port for way, port in ports.items() if way in answers},  # type: ignore[misc]
            tunnels="tunnel" in answers,
            tunnel_open="tunnel" in answers,
        )
        self.shares = Waits(TUNNELS) if "tunnel" in answers else None
        self.cluster = ClusterState()
        self.state = self.cluster.nodes["n"] = NodeState("n", 1, (), reach=reach)
        self.cluster.workers["w"] = PlacedWorker("w", "app", 1, "n", 1, "ready")
        loop = asyncio.get_running_loop()
        self.reaching = Reaching(self.cluster, self, loop.time, self.dial)  # type: ignore[arg-type]

    async def dial(self, gateway: NodeGateway) -> tuple[asyncio.StreamReader, Any]:
        return self._connected("direct" if gateway.certificate else "local")

    def of(self, node: str) -> Node:
        assert node == "n"
        return self

    def waits(self, node: str) -> Waits | None:
        return self.shares

    def connect(self) -> tuple[asyncio.StreamReader, Any]:
        return self._connected("tunnel")

    def _connected(self, way: str) -> tuple[asyncio.StreamReader, Any]:
        answer = self.answers[way]
        if isinstance(answer, Exception):
            raise answer
        to_node, to_control = Pipe(), Pipe()
        to_node.back, to_control.back = to_control, to_node
        self.pipes.append(to_node)
        self.tasks.append(asyncio.create_task(self._answer(way, answer, to_node.reader, to_control)))
        return to_control.reader, to_node

    async def _answer(self, way: str, answer: bytes | None, reader: asyncio.StreamReader, to: Pipe) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append((way, head.decode()))
        if answer is not None:
            to.write(b"HTTP/1.1 " + answer + b"\r\n\r\n")

    def order(self) -> list[str]:
        return [one.way for one in choose(self.state.reach, asyncio.get_running_loop().time())]


@story
async def test_who_holds_a_tunnels_connections_leaves_some_to_other_keys_and_endpoints() -> None:
    node, held = Node(tunnel=b"200 x"), ExitStack()
    with held:
        for _ in range(324):
            held.enter_context(node.reaching.share("w", Waiter("a", "greedy", "app")))
        with pytest.raises(TooMany, match="its share") as refused:
            held.enter_context(node.reaching.share("w", Waiter("a", "greedy", "app")))
        assert refused.value.status == 429
        for other in (Waiter("a", "other", "app"), Waiter("a", "greedy", "other"), Waiter("b")):
            with node.reaching.share("w", other):
                pass
    with node.reaching.share("w", Waiter("a", "greedy", "app")):
        pass  # what it gave back is its own again
    local = Node(local=b"200 x")
    with ExitStack() as held:
        for _ in range(TUNNELS.slots + 1):  # no tunnel, no share: a connection holds nothing that others need
            held.enter_context(local.reaching.share("w", Waiter("a", "greedy", "app")))


PROOF = f"CONNECT w HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
PLAIN = "CONNECT w HTTP/1.1\r\n\r\n"


@story
async def test_the_first_way_is_taken_and_a_tunnel_needs_no_proof() -> None:
    for way, head in (("local", PROOF), ("direct", PROOF), ("tunnel", PLAIN)):
        node = Node(**{way: b"200 x"})
        await node.reaching.open("w")
        assert node.heads == [(way, head)]
    node = Node(local=b"200 x", direct=b"200 x", tunnel=b"200 x")
    await node.reaching.open("w")
    assert [way for way, _ in node.heads] == ["local"]


@story
async def test_a_way_that_fails_falls_back_and_is_avoided() -> None:
    for failure in (OSError("Connection refused"), b"401 Unauthorized", None):
        await _falls_back(failure)


async def _falls_back(failure: bytes | Exception | None) -> None:
    node, loop = Node(direct=failure, tunnel=b"200 x"), asyncio.get_running_loop()
    began = loop.time()
    await node.reaching.open("w")
    assert loop.time() - began == (FALL_BACK_S if failure is None else 0)
    assert node.heads[-1] == ("tunnel", PLAIN)
    assert node.order() == ["tunnel", "direct"]
    assert choose(node.state.reach, loop.time())[0].why.startswith("direct failed: ")
    assert all(pipe.closed for pipe in node.pipes[:-1])
    node.answers["direct"] = b"200 x"
    await asyncio.sleep(3600)
    await node.reaching.open("w")
    assert node.heads[-1] == ("direct", PROOF)
    assert not node.state.reach.failures


@story
async def test_a_node_that_refuses_the_worker_is_not_asked_in_another_way() -> None:
    node = Node(direct=b"404 Not Found", tunnel=b"200 x")
    with pytest.raises(UpstreamFailed, match="it has ended"):
        await node.reaching.open("w")
    assert [way for way, _ in node.heads] == ["direct"]
    assert node.order() == ["direct", "tunnel"]


@story
async def test_where_every_way_fails_the_reasons_are_in_the_nodes_record() -> None:
    node = Node(direct=OSError("No route to host"), tunnel=ConnectionResetError("the tunnel has ended"))
    for _ in range(2):
        with pytest.raises(UpstreamFailed, match=r"worker w cannot be reached: no way to its node works"):
            await node.reaching.open("w")
        assert {"route" in one.why or "ended" in one.why for one in node.state.reach.failures.values()} == {
            True
        }
    assert node.reaching.can("w")
    del node.cluster.nodes["n"]
    assert not node.reaching.can("w")
    with pytest.raises(UpstreamFailed, match="its node is gone"):
        await node.reaching.open("w")
