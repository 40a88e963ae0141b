"""Replays of jobs with a case: each is run on a named node, as the one job of an endpoint made for it.

`replay_rules` says what that endpoint is. What rules the node out now is a refusal; where it is only busy,
the replay waits there as any job.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from stoker.control.errors import BadRequest, Conflict, NotFound
from stoker.control.jobs.commands import JobCommands
from stoker.control.jobs.details import JobDetails
from stoker.control.jobs.replay_rules import (
    Candidate,
    Wish,
    chosen,
    refusal,
    replay_endpoint,
    unknown,
    with_seed,
)
from stoker.control.large_json import LargeJson
from stoker.control.resources.management import ManagedResources
from stoker.control.resources.nodes import KnownNode
from stoker.control.rules.access import Caller
from stoker.control.rules.placement import NoPlacement
from stoker.control.rules.submissions import Submission
from stoker.control.rules.types import Endpoint, JobView, Replay
from stoker.control.scheduling.places import Places
from stoker.wire.ids import short_id
from stoker.wire.messages import Saved


class Replays:
    """The replays of an installation. `start` is all: then they are jobs."""

    def __init__(
        self,
        management: ManagedResources,
        places: Places,
        details: JobDetails,
        commands: JobCommands,
        rng: Random,
        large_json: LargeJson,
    ) -> None:
        self._management, self._places, self._large_json = management, places, large_json
        self._details, self._commands, self._rng = details, commands, rng

    async def start(self, endpoint: Endpoint, job: str, wish: Wish) -> JobView:
        """Returns the new job; its `endpoint` is the one that was made for it. Raises NotFound without a case
        or without such a node, BadRequest for a wish that cannot be met, Conflict for a node that takes
        nothing, TooMany where the jobs of the endpoint have many replays."""
        _, case, payloads = await self._details.whole_case(endpoint, job)
        if why := refusal(case.run, wish):
            raise BadRequest(f"job {job!r} cannot be replayed on a node: {why}")
        assert case.run is not None
        node = await self._node(endpoint.account, wish.node)
        saved = None
        if payloads.saved is not None and case.saved_upto is not None and not wish.from_start:
            saved = Saved(case.saved_upto, payloads.saved)
        replay = Replay(
            job, endpoint.rights, node.id, wish.stop_after, None if saved is None else case.stream
        )
        made = replay_endpoint(
            short_id(self._rng), endpoint, case.run, replay, node.name or node.id, case.timeout_ms
        )
        self._check_place(made, node)
        text = await self._input(payloads.input or b"null", wish.seed)
        return await self._submit(made, Submission(text, saved=saved))

    async def _input(self, text: bytes, seed: int | None) -> bytes:
        if seed is None:
            return text
        return await self._large_json.run("a seed", len(text), lambda: with_seed(text, seed))

    async def _node(self, account: str, wanted: str) -> Candidate:
        nodes = _candidates(await self._management.nodes.list(account))
        if (node := chosen(nodes, wanted)) is None:
            raise NotFound(unknown(nodes, wanted))
        if node.why_not:
            raise Conflict(f"node {wanted} {node.why_not}")
        return node

    def _check_place(self, made: Endpoint, node: Candidate) -> None:
        found = self._places.place(made, self._places.rooms(made))
        if isinstance(found, NoPlacement) and not found.may_come:
            raise Conflict(f"node {node.name or node.id} cannot run this job: {found.why}")

    async def _submit(self, made: Endpoint, submission: Submission) -> JobView:
        stored = await self._management.endpoints.add(made)
        try:
            return await self._commands.submit(stored, submission, sync=False, caller=Caller(stored.account))
        except Exception:
            await self._management.endpoints.delete(stored.account, stored.id)
            raise


def _candidates(nodes: Sequence[KnownNode]) -> list[Candidate]:
    return [Candidate(one.record.id, one.record.name, _why_not(one)) for one in nodes]


def _why_not(node: KnownNode) -> str:
    if node.state != "connected":
        return "is not connected: start its agent, or name another node"
    if node.record.drained:
        return "is drained: `stoker node resume` allows work there again"
    return "is about to go: its agent is stopping" if node.leaving else ""
