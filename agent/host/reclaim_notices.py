"""The notices of clouds that they take a host back: how each is asked for, and what its answer means. Pure.

aws    /latest/meta-data/spot/instance-action      404 until there is one; two minutes
gcp    /computeMetadata/v1/instance/preempted      FALSE, then TRUE; thirty seconds
azure  /metadata/scheduledevents                   an event that names this host; thirty seconds and more
"""

from __future__ import annotations

import json
import re
from calendar import timegm
from collections.abc import Callable, Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Any

from msgspec import Struct, field

SHORTEST_S = 30.0
"""The time that a cloud gives which names none."""

TAKING = frozenset({"Preempt", "Terminate", "Redeploy"})
"""The kinds of Azure's events after which the host is another one, or none."""


class NoticeUnreadable(Exception):
    """The metadata service answered what it does not answer in this cloud; the text says what."""


class Question(Struct, frozen=True):
    """A request to the metadata service."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"


class Notice(Struct, frozen=True):
    """The host is taken back. `leave_at`: when, in seconds since the epoch."""

    cloud: str
    leave_at: float

    def why(self, node: str) -> str:
        """Returns the reason that the jobs of this node are shown."""
        minutes, seconds = divmod(int(self.leave_at) % 86_400, 60)
        at = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
        return f"{self.cloud} takes the host of node {node} back at {at} UTC"

    def left_s(self, now: float) -> float:
        """Returns how long the host has left."""
        return max(self.leave_at - now, 0.0)


class Cloud(Struct, frozen=True):
    """A cloud's metadata service. `token`: its answer goes with the other questions, as the header
    `token_header`. `name`: its answer is what notices call this host. `read` returns the notice in an answer
    (status and body) for the host of that name, at that time; it raises NoticeUnreadable."""

    notice: Question
    read: Callable[[int, bytes, str, float], Notice | None]
    token: Question | None = None
    token_header: str = ""
    name: Question | None = None


_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z", re.ASCII)


def _aws(status: int, body: bytes, _name: str, _now: float) -> Notice | None:
    if status == 404:
        return None
    found = _TIME.fullmatch(str(_object("aws", status, body).get("time")))
    if found is None:
        raise NoticeUnreadable(f"aws: an instance-action has no time: {body[:200]!r}")
    return Notice("aws", float(timegm(tuple(map(int, found.groups())))))


def _gcp(status: int, body: bytes, _name: str, now: float) -> Notice | None:
    answer = body.strip().upper()
    if status != 200 or answer not in (b"TRUE", b"FALSE"):
        raise NoticeUnreadable(f"gcp: preempted is TRUE or FALSE, not {status} {body[:200]!r}")
    return Notice("gcp", now + SHORTEST_S) if answer == b"TRUE" else None


def _azure(status: int, body: bytes, name: str, now: float) -> Notice | None:
    events = _object("azure", status, body).get("Events", [])
    try:
        taking = [event for event in events if event["EventType"] in TAKING and _is_of(event, name)]
        times = [_begins(event, now) for event in taking]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NoticeUnreadable(f"azure: an event lacks what it must have: {body[:200]!r}") from None
    return Notice("azure", min(times)) if times else None


def _begins(event: Mapping[str, Any], now: float) -> float:
    """Returns when an event begins; one that has begun has no NotBefore any more."""
    at = parsedate_tz(event.get("NotBefore") or "")
    return now if at is None else float(mktime_tz(at))


def _is_of(event: Mapping[str, Any], name: str) -> bool:
    """Returns whether the event is about this host: those of its neighbours are listed, too."""
    return name.casefold() in {str(one).casefold() for one in event["Resources"]}


def _object(cloud: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body) if status == 200 else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise NoticeUnreadable(f"{cloud}: the metadata service answered {status} {body[:200]!r}")
    return found


_OF_AZURE = {"Metadata": "true"}

CLOUDS: Mapping[str, Cloud] = {
    "aws": Cloud(
        Question("/latest/meta-data/spot/instance-action"),
        _aws,
        token=Question("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT"),
        token_header="X-aws-ec2-metadata-token",
    ),
    "gcp": Cloud(Question("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}), _gcp),
    "azure": Cloud(
        Question("/metadata/scheduledevents?api-version=2020-07-01", _OF_AZURE),
        _azure,
        name=Question("/metadata/instance/compute/name?api-version=2021-02-01&format=text", _OF_AZURE),
    ),
}
