"""Replays of jobs on a node of the platform: the endpoint that is made for one, and refusals. Pure.

    case ──> an endpoint for this one job: what the job ran, no prices, one worker, on the named node
             └──> the job's input, from its last save; tried once, its case kept

So a replay is placed, runs, is stopped and shown as any job, and costs nobody anything. Its endpoint is
deleted an hour after its last use. Whoever may call the job's endpoint may call it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import asdict, replace
from pydantic_core import to_json

from stoker.control.errors import TooMany
from stoker.control.rules.limits import REPLAY_LIFE_S, REPLAYS_MOST
from stoker.control.rules.types import Endpoint, EndpointVersion, Replay


class Wish(Struct, frozen=True):
    """A replay as it was asked for. `node`: an id or a name. `stop_after`: after so many reports of progress
    and chunks the handler is stopped; 0: it is not. `seed`: put into an input that has none."""

    node: str
    from_start: bool = False
    stop_after: int = 0
    seed: int | None = None


class Candidate(Struct, frozen=True):
    """A node that is known. `why_not`: why nothing new may go there, as the end of a sentence about it; empty
    where something may."""

    id: str
    name: str
    why_not: str = ""


RETRY_S = 60
"""When to come back where there are too many replays: nobody knows when one ends."""

NAMED_MOST = 10
"""So many nodes are named where the one that was asked for is not known."""


def chosen(nodes: list[Candidate], wanted: str) -> Candidate | None:
    """Returns the node of this id, or the only one of this name; None where there is none."""
    named = [node for node in nodes if node.name == wanted]
    by_id = next((node for node in nodes if node.id == wanted), None)
    return by_id or (named[0] if len(named) == 1 else None)


def unknown(nodes: list[Candidate], wanted: str) -> str:
    """Returns why no node was chosen."""
    if ids := [node.id for node in nodes if node.name == wanted]:
        return f"several nodes have the name {wanted!r}: name one by its id, {' or '.join(ids)}"
    known = ", ".join(sorted(node.name or node.id for node in nodes)[:NAMED_MOST])
    return (
        f"no node has the id or the name {wanted!r}; the nodes are {known}" if nodes else "there is no node"
    )


def refusal(run: EndpointVersion | None, wish: Wish) -> str:
    """Returns why the job cannot be run again on any node; empty where it can. `run`: what it ran."""
    if run is None:
        return "it is not known what the job ran: its version of the endpoint is not stored"
    if wish.stop_after and run.kind != "python":
        return "stopAfter is for Python handlers: other programs cannot be stopped at a report"
    return ""


def one_too_many(made: Endpoint, others: Iterable[Endpoint]) -> TooMany | None:
    """Returns why there may be no further replay of jobs of the endpoint, or None. `made`: its endpoint."""
    if sum(one.replay is not None and one.rights == made.rights for one in others) < REPLAYS_MOST:
        return None
    text = (
        f"jobs of endpoint {made.rights} have {REPLAYS_MOST} replays, and may have no more at once: each goes"
        f" {REPLAY_LIFE_S / 3600:g} h after its last use, or when its endpoint is deleted"
    )
    return TooMany(text, limit=REPLAYS_MOST, window_s=None, retry_after=RETRY_S, unit="replays")


def replay_endpoint(
    new: str, of: Endpoint, run: EndpointVersion, replay: Replay, node_name: str, timeout_ms: int
) -> Endpoint:
    """Returns the endpoint of a replay. Its input was checked and completed when it was first taken in."""
    return Endpoint(
        id=new,
        account=of.account,
        name=f"replay of {replay.job} on {node_name}",
        version=1,
        run=replace(run, prices=(), schema=None),
        workers_max=1,
        execution_timeout_ms=timeout_ms,
        ttl_ms=of.ttl_ms,
        max_attempts=1,
        origin="api",
        requested={"temporary": True, "replay": asdict(replay)},
        keep_cases=True,
    )


def with_seed(text: bytes, seed: int) -> bytes:
    """Returns the input, JSON text, with the seed, unless it has one or takes none."""
    value = json.loads(text)
    if not isinstance(value, dict) or value.get("seed") is not None:
        return text
    return to_json({**value, "seed": seed})
