"""Hosts that their cloud may take back at any time, and the jobs that avoid them. Pure.

A node is such a host if it has the label `spot`. A job loses with it what it has made since its last save, so
endpoints whose jobs are long and do not save go to others, where another one has a place or a free worker; if
none has, they go there as any: a job that is lost there is tried again, and one that waits may wait for ever.

    long      its jobs ran for more than LONG_S, or none has ended yet and one may run for MAY_S
    saves     a save of this version has been seen since control started
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from stoker.control.rules.placement import NodeRoom, Placement

LABEL = "label.spot"
LONG_S = 300.0
MAY_S = 3_600.0


def is_spot(facts: Mapping[str, str]) -> bool:
    """Returns whether the node has the label, with any value but `no` or `false`."""
    return facts.get(LABEL, "no").casefold() not in ("no", "false")


def why_avoided(run_s: float | None, timeout_s: float, *, saves: bool) -> str:
    """Returns why the jobs of an endpoint avoid spot hosts, as the end of a sentence about a node that does
    not have the label; empty if they do not. `run_s`: how long its jobs ran on average, None if none has
    ended; `timeout_s`: how long one may run."""
    if saves:
        return ""
    if run_s is not None and run_s > LONG_S:
        return f"is not a spot host: jobs that ran for {run_s:.0f} s saved nothing"
    if run_s is None and timeout_s >= MAY_S:
        return f"is not a spot host: jobs that may run for {timeout_s:.0f} s have saved nothing yet"
    return ""


def others(rooms: Iterable[NodeRoom]) -> list[NodeRoom]:
    """Returns the rooms of the nodes without the label."""
    return [room for room in rooms if not is_spot(room.facts)]


def with_reason(place: Placement, why: str) -> Placement:
    return replace(place, why=f"{place.why}, and {why}" if place.why else why)
