"""Requests to running attempts to yield: each saves at its next boundary and gives up its place.

    ask ──> Yield ──> its agent ──> its handler: at the next `job.save`, or never
                                      └──> Outcome "yielded": its job is back in the queue, uncounted

A request that is lost with a session is not repeated, except for a node that `leave` was called for: what
such a node still holds when it comes back is asked again.
"""

from __future__ import annotations

from stoker.control.nodes.sessions import NodeSessions
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.wire.messages import AttemptKey, Yield


class Yields:
    """The requests of this process."""

    def __init__(self, cluster: ClusterState, sessions: NodeSessions) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._leaving: dict[str, str] = {}

    def ask(self, key: AttemptKey, why: str) -> bool:
        """Asks a running attempt to yield; `why` ends the sentence "yielded: …" of its job's record. Returns
        whether its agent can pass the request on; a handler that does not save runs on all the same."""
        node = self._cluster.node_of(key)
        if node is None or not node.yields:
            return False
        self._sessions.ask_to_yield(node.node, Yield(key.job, key.attempt, why))
        return True

    def leave(self, node: str, why: str) -> None:
        """Asks all that the node runs, now and whenever it connects again, until `stays`."""
        self._leaving[node] = why
        self.ask_again(node)

    def stays(self, node: str) -> None:
        self._leaving.pop(node, None)

    def ask_again(self, node: str) -> None:
        """Asks what a node runs that has just connected, if it is to leave."""
        if (why := self._leaving.get(node)) is not None:
            for key in self._cluster.attempts_on(node):
                self.ask(key, why)
