"""The agent's end of the tunnel: opened again when it breaks, and what control opens in it."""

from __future__ import annotations

import asyncio

import pytest

from stoker.agent.host.free_ports import HostPorts
from stoker.agent.workers.http_servers import tunnel as agents_tunnel
from stoker.agent.workers.http_servers.relay import Relay
from stoker.agent.workers.http_servers.tunnel import TunnelToControl
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts
from stoker.testing.memory_stream import MemoryStream, memory_tunnel
from stoker.wire.messages import StreamHello, TunnelPieces
from stoker.wire.streams import NoTunnels, StreamEnded, TunnelStream
from stoker.wire.tunnel.tunnel import Tunnel

HELLO = StreamHello("node-1", 7)


class Session:
    """Where the agent opens its tunnels. `ends` are control's ends of them; `has`: it takes more of them."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[MemoryStream[TunnelPieces, TunnelPieces]] = asyncio.Queue()
        self.has = True

    async def open_tunnel(self) -> TunnelStream:
        if not self.has:
            raise NoTunnels
        agent, control = memory_tunnel()
        self.ends.put_nowait(control)
        return agent


async def test_it_is_opened_again_until_control_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_tunnel, "AGAIN_S", 0)
    session, relay = Session(), Relay(WorkerPorts(HostPorts()))
    running = asyncio.create_task(TunnelToControl(relay).run(session, HELLO))
    for more in (True, False):
        end = await session.ends.get()
        session.has = more
        assert (await end.receive()).hello == HELLO
        tunnel = Tunnel(end)
        serving = asyncio.create_task(tunnel.run())
        reader, writer = tunnel.connect()
        writer.write(b"CONNECT w1 HTTP/1.1\r\n\r\n")  # without a token
        assert (await reader.read()).startswith(b"HTTP/1.1 404 ")
        writer.close()
        end.end("it broke")
        with pytest.raises(StreamEnded, match="it broke"):
            await serving
    await running
    await relay.close()
