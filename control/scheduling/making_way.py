"""Slots for jobs of a higher class: where one waits and no slot is free, a running attempt is asked to yield.

    waits, no free slot ──> store: next in line, what runs ──> rule ──> ask one attempt

Looked at with the demand, for the endpoints in whose queue a job waits. `control.rules.queueing.yielding`
decides; what was asked is known to this process alone, and asked again after a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from stoker.control import store
from stoker.control.context import Context
from stoker.control.rules.queueing.yielding import Asked, Running, decide
from stoker.control.rules.wanted_workers import UNMEASURED_START_S
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.wire.messages import AttemptKey

log = logging.getLogger(__name__)

ASK_AGAIN_S = 60.0
"""A request may be lost with its node's session."""


class MakingWay:
    """The requests to jobs that they make way for urgent ones. `ask` asks an attempt to yield, and returns
    whether its agent can pass that on."""

    def __init__(
        self, context: Context, cluster: ClusterState, ask: Callable[[AttemptKey, str], bool]
    ) -> None:
        self._commits, self._clock = context.commits, context.clock
        self._cluster, self._ask = cluster, ask
        self._asked: dict[AttemptKey, float] = {}

    async def look(self, endpoints: Iterable[str]) -> None:
        """Asks at most one attempt of each of these endpoints, whose jobs wait."""
        now = self._clock()
        self._asked = {key: at for key, at in self._asked.items() if now - at < ASK_AGAIN_S}
        for endpoint in endpoints:
            if self._may_help(endpoint):
                await self._look_at(endpoint, now)

    def _may_help(self, endpoint: str) -> bool:
        """Returns whether the endpoint's slots are all taken, and an agent there can pass a request on."""
        ready = [one for one in self._cluster.of_endpoint(endpoint) if one.state == "ready"]
        nodes = (self._cluster.nodes.get(one.node) for one in ready if one.busy)
        return all(not one.free for one in ready) and any(node is not None and node.yields for node in nodes)

    async def _look_at(self, endpoint: str, now: float) -> None:
        found = await self._commits.read(lambda conn: store.contest(conn, endpoint, now))
        if found is None:
            return
        running = [self._as_asked(one) for one in found.running if self._may_be_asked(one)]
        job_s = self._cluster.throughputs[endpoint].job_s
        decision = decide(found.waiting, running, job_s, self._starting_in(endpoint, now))
        if isinstance(decision, Asked):
            key = AttemptKey(decision.attempt.job, decision.attempt.attempt)
            if self._ask(key, decision.why):
                self._asked[key] = now
                log.info("job %s of endpoint %s is asked to yield: %s", key.job, endpoint, decision.why)

    def _may_be_asked(self, one: Running) -> bool:
        """Returns whether the attempt runs on a connected node; one that lies ahead of a worker has no
        slot."""
        key = AttemptKey(one.job, one.attempt)
        return self._cluster.node_of(key) is not None and not self._cluster.lies_ahead(key)

    def _as_asked(self, one: Running) -> Running:
        return replace(one, asked=AttemptKey(one.job, one.attempt) in self._asked)

    def _starting_in(self, endpoint: str, now: float) -> list[float]:
        start_s = self._cluster.throughputs[endpoint].start_s or UNMEASURED_START_S
        starting = (one for one in self._cluster.of_endpoint(endpoint) if one.state == "starting")
        return [max(start_s - (now - one.since), 0.0) for one in starting]
