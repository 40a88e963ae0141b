"""The values that the fields of each message of a node may have. Pure: `control.rules.nodes.validation`
checks them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, get_args

from msgspec import Struct, field

from stoker.wire import messages
from stoker.wire.messages import (
    Artifact,
    Device,
    DeviceSample,
    HeldWorker,
    Hello,
    LogLines,
    Outcome,
    PodState,
    PortMapping,
    Ref,
    Refused,
    Save,
    Span,
    StartStage,
    Usage,
    VolumeUsed,
    WorkerState,
)

NUMBER_MAX = 2**63 - 1
"""What a column of the store holds."""

AMOUNT_MAX = 2**53
"""Of what a job took or made: sums of many are still numbers that a column holds."""

CHUNKS_MAX = 2**31
"""Of one job."""

NANO_USD_MAX = 10**15
"""A million US dollars, for one span."""

NAME_MAX = 256
SERVES_MAX = 1024
"""As much as an agent takes from a worker: its pipeline, and why each speed-up of a profile is left out."""
FACT_MAX = 4096
STAGES_MAX = 64

NAME = re.compile(rf"[^\x00-\x1f\x7f]{{1,{NAME_MAX}}}")
_WORKER_STATES = frozenset(get_args(messages.WorkerPhase))
_POD_STATES = frozenset(get_args(messages.PodPhase))
_ENDS = frozenset(get_args(messages.End))
_DEVICE_KINDS = frozenset(get_args(messages.DeviceKind))


class Fields(Struct, frozen=True):
    """The limits of a message's fields. `numbers` have these maxima, `names` have no control characters,
    `choices` are values of these sets. `texts` are for people: this many of their characters are kept, and no
    NUL, which PostgreSQL does not store."""

    numbers: Mapping[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    choices: Mapping[str, Collection[str]] = field(default_factory=dict)
    texts: Mapping[str, int | None] = field(default_factory=dict)


ANY = Fields()

FIELDS: Mapping[type[Any], Fields] = {
    Refused: Fields(texts={"reason": None}),
    Save: Fields({"upto": CHUNKS_MAX}),
    Outcome: Fields(
        numbers={"wait_ms": AMOUNT_MAX, "execution_ms": AMOUNT_MAX, "log_first": AMOUNT_MAX},
        choices={"end": _ENDS},
        texts={"worker": None, "error": None, "log": None},
    ),
    Ref: Fields({"size": NUMBER_MAX}, ("sha256",)),
    Artifact: Fields({"size": NUMBER_MAX}, ("sha256", "media_type")),
    Span: Fields({"quantity": AMOUNT_MAX, "nano_usd": NANO_USD_MAX}, ("kind", "unit")),
    WorkerState: Fields(
        choices={"state": _WORKER_STATES},
        texts={"reason": None, "log_tail": None, "serves": SERVES_MAX, "waits_for": FACT_MAX},
    ),
    PodState: Fields(
        {"started_ms": NUMBER_MAX}, choices={"state": _POD_STATES}, texts={"reason": None, "log_tail": None}
    ),
    PortMapping: Fields({"private": 65535, "public": 65535}, choices={"protocol": ("http", "tcp", "udp")}),
    VolumeUsed: Fields({"used_bytes": NUMBER_MAX}),
    Usage: Fields(
        {"n": NUMBER_MAX, "began_ms": NUMBER_MAX, "ended_ms": NUMBER_MAX, "version": NUMBER_MAX},
        ("owner", "boot"),
    ),
    Hello: Fields(
        {"first_unacked": 2**64 - 1, "jobs_ahead": NUMBER_MAX},
        ("node", "boot"),
        texts={"name": NAME_MAX, "agent_version": 64},
    ),
    Device: Fields(
        {"memory_total": NUMBER_MAX}, ("uuid", "name", "parent", "driver"), choices={"kind": _DEVICE_KINDS}
    ),
    HeldWorker: Fields(
        choices={"state": _WORKER_STATES}, texts={"serves": SERVES_MAX, "waits_for": FACT_MAX}
    ),
    StartStage: Fields({"took_ms": AMOUNT_MAX}, texts={"name": NAME_MAX}),
    DeviceSample: Fields(texts={"ill": FACT_MAX}),
    LogLines: Fields({"first": AMOUNT_MAX}),
}
"""By message; a message that is not here may hold ANY."""
