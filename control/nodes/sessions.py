"""The sessions of the nodes that are connected to this process. All that is sent to a node passes here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from stoker.control.nodes.session import NodeSession
from stoker.wire.messages import AttemptKey, Cancel, Desired, Yield

log = logging.getLogger(__name__)

GOODBYE_S = 2.0


class NodeSessions:
    """The sessions by node. What is sent to a node without a session is dropped: the node reports what it
    holds on its return. `unsent` is called with the node and each attempt that a session has not sent at its
    end."""

    def __init__(self, unsent: Callable[[str, AttemptKey], None]) -> None:
        self.stopping = False
        self._unsent = unsent
        self.by_node: dict[str, NodeSession] = {}
        self._left = asyncio.Event()

    def add(self, session: NodeSession) -> None:
        """Adds a session; an earlier session of the same node ends."""
        earlier = self.by_node.get(session.node)
        self.by_node[session.node] = session
        if earlier is not None:
            earlier.end("a newer session took over")

    def remove(self, session: NodeSession) -> bool:
        """Removes a session that is over. Returns False where a newer session of the node has taken over."""
        for key in session.unsent():
            self._unsent(session.node, key)
        if self.by_node.get(session.node) is not session:
            return False
        del self.by_node[session.node]
        self._left.set()
        return True

    def connected(self) -> set[str]:
        return set(self.by_node)

    def cancel(self, node: str, cancel: Cancel) -> None:
        session = self.by_node.get(node)
        if session is not None:
            session.cancel(cancel)

    def ask_to_yield(self, node: str, request: Yield) -> None:
        session = self.by_node.get(node)
        if session is not None:
            session.ask_to_yield(request)

    def desire(self, node: str, desired: Desired) -> None:
        session = self.by_node.get(node)
        if session is not None:
            session.desire(desired)

    def disconnect(self, nodes: Iterable[str]) -> None:
        """Ends the sessions of nodes whose credential was revoked: they are refused when they come back."""
        for node in nodes:
            if (session := self.by_node.get(node)) is not None:
                session.end("its credential was revoked")

    def expire(self, lost: Mapping[str, int]) -> None:
        """Ends the sessions that the store has closed. Where the wall clock was set forward, streams still
        stand: a node that is there connects again at once, and a node that is not there gets no jobs."""
        for node, number in lost.items():
            session = self.by_node.get(node)
            if session is not None and session.session == number:
                session.end("by the clock of control, no word from it for too long")

    def uncertain_commit(self, error: Exception) -> None:
        """Makes every node connect again: a commit may have claimed or ended jobs, and its result is
        unknown."""
        log.error("every node must connect again: %s", error)
        for session in self.by_node.values():
            session.end("it is unknown what was stored")

    async def stop(self) -> None:
        """Tells every agent that this process ends. Returns when their sessions are over, and soon."""
        self.stopping = True
        for session in self.by_node.values():
            session.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                while self.by_node:
                    self._left.clear()
                    await self._left.wait()
