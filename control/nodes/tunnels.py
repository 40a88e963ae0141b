"""The tunnels that agents opened: streams through which control reaches the http workers of their nodes.

session with a Welcome that requests one ──> the agent opens it, and names its node ──> open
open ──the stream breaks, or a newer one came──> its connections are reset; the agent opens it again
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace

from stoker.control.scheduling.cluster_state import ClusterState
from stoker.outbound.wait_limits import TUNNELS
from stoker.outbound.waits import Waits
from stoker.wire.messages import StreamHello
from stoker.wire.streams import StreamEnded, TunnelStream, first_message
from stoker.wire.tunnel.tunnel import Tunnel

log = logging.getLogger(__name__)


class Tunnels:
    """The open tunnels by node. `accept` returns why the holder of a token may not open the tunnel of the
    node that its Hello names. `look` is called with an endpoint whose workers may be reached now."""

    def __init__(
        self,
        accept: Callable[[StreamHello, str], Awaitable[str | None]],
        cluster: ClusterState,
        look: Callable[[str], None],
    ) -> None:
        self._accept, self._cluster, self._look = accept, cluster, look
        self._tunnels: dict[str, tuple[TunnelStream, Tunnel]] = {}
        self._waits: dict[str, Waits] = {}

    def of(self, node: str) -> Tunnel | None:
        return self._tunnels[node][1] if node in self._tunnels else None

    def disconnect(self, nodes: Iterable[str]) -> None:
        """Ends the tunnels of nodes whose credential was revoked."""
        for node in nodes:
            if node in self._tunnels:
                self._tunnels[node][0].end("its credential was revoked")

    def waits(self, node: str) -> Waits | None:
        """Returns how the connections in the node's tunnel are shared by their callers; None if it has no
        tunnel."""
        return self._waits[node] if node in self._tunnels else None

    async def serve(self, stream: TunnelStream, peer: str, token: str) -> None:
        """Serves one stream of one node, from its Hello to its end."""
        if (message := await first_message(stream)) is None:
            return
        hello = message.hello
        refusal: str | None = "the first message must say who speaks"
        if hello is not None:
            refusal = await self._accept(hello, token) or self._unwanted(hello.node)
        if hello is None or refusal is not None:
            log.warning("the tunnel of %s is refused: %s", peer, refusal)
            return stream.end(refusal or "")
        tunnel = Tunnel(stream)
        earlier = self._tunnels.get(hello.node)
        self._tunnels[hello.node] = stream, tunnel
        self._waits[hello.node] = Waits(TUNNELS)
        if earlier is not None:
            earlier[0].end("a newer tunnel took over")
        self._note(hello)
        try:
            await tunnel.run()
        except StreamEnded as ended:
            log.info("the tunnel of node %s is over: %s", hello.node, ended)
        finally:
            if self.of(hello.node) is tunnel:
                del self._tunnels[hello.node], self._waits[hello.node]
            self._note(hello)

    def _unwanted(self, node: str) -> str | None:
        known = self._cluster.nodes.get(node)
        wanted = known is not None and known.reach.wants_tunnel
        return None if wanted else f"control did not ask node {node} for a tunnel"

    def _note(self, hello: StreamHello) -> None:
        node = self._cluster.nodes.get(hello.node)
        if node is None or node.session != hello.session:
            return
        node.reach = replace(node.reach, tunnel_open=hello.node in self._tunnels)
        for endpoint in {one.endpoint for one in self._cluster.workers.values() if one.node == hello.node}:
            self._look(endpoint)
