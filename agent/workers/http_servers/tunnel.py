"""The tunnel to control: a stream of its own, through which control reaches the http workers of this node.

Welcome requests one ──> opened ──connections that control opens──> agent.workers.http_servers.relay
                           └─ it breaks: opened again after AGAIN_S, as long as the session lasts
"""

from __future__ import annotations

import asyncio
import logging

from stoker.agent.workers.http_servers.relay import Relay
from stoker.wire.messages import StreamHello, TunnelPieces
from stoker.wire.streams import HasTunnels, NoTunnels, StreamEnded
from stoker.wire.tunnel.tunnel import Tunnel

log = logging.getLogger(__name__)

AGAIN_S = 1.0


class TunnelToControl:
    """Lives as long as the agent; `run` for one session, until it is cancelled. Returns where control has no
    tunnels."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def run(self, stream: HasTunnels, hello: StreamHello) -> None:
        while True:
            try:
                opened = await stream.open_tunnel()
                try:
                    await opened.send(TunnelPieces(hello))
                    await Tunnel(opened, self._accept).run()
                finally:
                    opened.end("the session is over")
            except NoTunnels:
                log.info("this control has no tunnels")
                return
            except StreamEnded as ended:
                log.info("the tunnel is over: %s", ended)
            await asyncio.sleep(AGAIN_S)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._relay.begin(self._relay.serve(reader, writer))
