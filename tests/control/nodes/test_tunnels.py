"""The tunnel of a node: who may open it, and what control knows of it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from stoker.control.config.settings import PlaneSettings
from stoker.control.nodes.joining import revoke
from stoker.control.rules.nodes.ways import WAYS, choose
from stoker.testing.memory_stream import MemoryStream, memory_logs, memory_tunnel
from stoker.wire.messages import DirectGateway, GatewayAddress, LogLines, StreamHello, TunnelPieces
from stoker.wire.streams import StreamEnded
from stoker.wire.tunnel.tunnel import Tunnel
from tests.control.plane_world import NAMESPACE, World, endpoint, story, world
from tests.control.scripted_agent import ScriptedAgent

TOKEN = "a-token-of-the-agent"
FORWARDED, UNKNOWN = GatewayAddress(20_000, TOKEN, "of another host"), GatewayAddress(20_000, TOKEN)
FAR, HERE = "ipv4:10.0.0.7:4711", "ipv4:127.0.0.1:4711"


def ways(w: World, node: str = "node-1") -> list[str]:
    return [one.way for one in choose(w.plane.cluster.nodes[node].reach, w.now())]


class Opened:
    """A stream for a tunnel, as an agent opens it."""

    def __init__(self, w: World, tasks: asyncio.TaskGroup, token: str) -> None:
        self.stream, theirs = memory_tunnel()
        self.serving = tasks.create_task(self._serve(w, theirs, token))

    async def _serve(self, w: World, stream: MemoryStream[Any, Any], token: str) -> None:
        with contextlib.suppress(StreamEnded):
            await w.plane.tunnels.serve(stream, "test", token)

    async def begin(self, hello: StreamHello | None) -> Opened:
        await self.stream.send(TunnelPieces(hello))
        await asyncio.sleep(0.1)
        return self


async def until_its_end(tunnel: Tunnel) -> None:
    with contextlib.suppress(StreamEnded):
        await tunnel.run()


async def connected(w: World, tasks: asyncio.TaskGroup, **fields: Any) -> tuple[ScriptedAgent, Any]:
    agent = w.agent()
    for name, value in {"peer": FAR, "tunnels": True, **fields}.items():
        setattr(agent, name, value)
    return agent, (await agent.connect(tasks)).welcome


@story
async def test_it_is_open_as_long_as_its_stream() -> None:
    async with world(endpoint()) as (w, tasks):
        agent, welcome = await connected(w, tasks)
        assert (welcome.tunnel, ways(w)) == (True, [])
        first = await Opened(w, tasks, agent.token).begin(StreamHello(agent.node, welcome.session))
        assert ways(w) == ["tunnel"]
        second = await Opened(w, tasks, agent.token).begin(StreamHello(agent.node, welcome.session))
        with pytest.raises(StreamEnded, match="a newer tunnel took over"):
            await first.stream.receive()
        await first.serving
        assert ways(w) == ["tunnel"]
        accepted: list[Any] = []
        tasks.create_task(until_its_end(Tunnel(second.stream, lambda *pair: accepted.append(pair))))
        tunnel = w.plane.tunnels.of(agent.node)
        assert tunnel is not None
        reader, writer = tunnel.connect()
        writer.write(b"x")
        await asyncio.sleep(0.1)
        assert await accepted[0][0].read(1) == b"x"
        second.stream.end("the agent was killed")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert writer.is_closing()
        await second.serving
        assert (ways(w), w.plane.tunnels.of(agent.node)) == ([], None)


@story
async def test_only_the_node_itself_opens_it() -> None:
    async with world(endpoint()) as (w, tasks):
        agent, welcome = await connected(w, tasks)
        for token, hello in (
            (w.token, StreamHello(agent.node, welcome.session)),
            (agent.token, StreamHello(agent.node, welcome.session + 1)),
            (agent.token, StreamHello("node-2", welcome.session)),
            (agent.token, None),
        ):
            refused = await Opened(w, tasks, token).begin(hello)
            with pytest.raises(StreamEnded):
                await refused.stream.receive()
            await refused.serving
        assert (ways(w), w.plane.tunnels.of(agent.node)) == ([], None)


@story
async def test_it_is_wanted_only_of_an_agent_that_has_one_and_is_elsewhere() -> None:
    here = GatewayAddress(20_000, TOKEN, NAMESPACE)
    direct = DirectGateway("", 8002, TOKEN, b"certificate")
    everything = {"gateway": here, "direct": direct}
    for allowed, fields, wanted, there in (
        (None, {"peer": HERE, **everything}, False, ["local", "direct"]),
        (None, {"peer": HERE, "gateway": FORWARDED}, True, []),
        (None, {"peer": HERE, "gateway": UNKNOWN}, True, []),
        (None, everything, True, ["direct"]),
        (None, {**everything, "tunnels": False}, False, ["direct"]),
        (("direct", "tunnel"), {"peer": HERE, **everything}, True, ["direct"]),
        (("direct",), {"peer": HERE, **everything}, False, ["direct"]),
    ):
        settings = PlaneSettings(gateway_ways=allowed or WAYS, network_namespace=NAMESPACE)
        async with world(endpoint(), settings=settings) as (w, tasks):
            _, welcome = await connected(w, tasks, **fields)
            assert (welcome.tunnel, ways(w)) == (wanted, there)


@story
async def test_an_agent_behind_a_forwarded_port_is_reached_through_its_tunnel() -> None:
    """Its session comes from loopback, as one of this host does, and its port is on another loopback."""
    async with world(endpoint()) as (w, tasks):
        agent, welcome = await connected(w, tasks, peer=HERE, gateway=FORWARDED)
        opened = await Opened(w, tasks, agent.token).begin(StreamHello(agent.node, welcome.session))
        accepted: list[Any] = []
        tasks.create_task(until_its_end(Tunnel(opened.stream, lambda *pair: accepted.append(pair))))
        assert ways(w) == ["tunnel"]
        tunnel = w.plane.tunnels.of(agent.node)
        assert tunnel is not None
        reader, writer = tunnel.connect()
        writer.write(b"x")
        await asyncio.sleep(0.1)
        assert await accepted[0][0].read(1) == b"x"
        opened.stream.end("the agent left")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert writer.is_closing()
        await opened.serving


@story
async def test_one_that_control_did_not_ask_for_is_refused() -> None:
    for fields in ({"tunnels": False}, {"peer": HERE, "gateway": GatewayAddress(20_000, TOKEN, NAMESPACE)}):
        async with world(endpoint()) as (w, tasks):
            agent, welcome = await connected(w, tasks, **fields)
            refused = await Opened(w, tasks, agent.token).begin(StreamHello(agent.node, welcome.session))
            with pytest.raises(StreamEnded, match="control did not ask node node-1 for a tunnel"):
                await refused.stream.receive()
            await refused.serving
            assert w.plane.tunnels.of(agent.node) is None


@story
async def test_it_ends_with_its_nodes_credential_and_so_do_its_logs() -> None:
    async with world(endpoint()) as (w, tasks):
        agent, welcome = await connected(w, tasks)
        hello = StreamHello(agent.node, welcome.session)
        opened = await Opened(w, tasks, agent.token).begin(hello)
        logs, theirs = memory_logs()

        async def serve_logs() -> None:
            with contextlib.suppress(StreamEnded):
                await w.plane.live_logs.serve(theirs, "test", agent.token)

        serving = tasks.create_task(serve_logs())
        await logs.send(LogLines(hello))
        await asyncio.sleep(0.1)
        assert w.plane.live_logs.has_stream(agent.node)
        await w.commits.commit(lambda conn: revoke(conn, agent.node, w.now()))
        await asyncio.sleep(2 * PlaneSettings().sweep_s)
        with pytest.raises(StreamEnded, match="its credential was revoked"):
            await opened.stream.receive()
        await asyncio.wait((opened.serving, serving))
        found = w.plane.tunnels.of(agent.node), w.plane.live_logs.has_stream(agent.node)
        assert found == (None, False)
