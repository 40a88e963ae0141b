"""The parts of a Hello and of a beat that control accepts: facts about the node, workers that the node was
given, and how its http workers are reached. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import unquote

from msgspec.structs import replace

from stoker.control.rules.nodes.field_limits import FACT_MAX, NAME, NUMBER_MAX
from stoker.control.rules.nodes.validation import (
    DEVICES_MAX,
    LISTED_MAX,
    AssignedWorker,
    InvalidReport,
    check_slots,
    checked,
    checked_stages,
    few,
    no_name,
    short_repr,
)
from stoker.control.rules.nodes.ways import NodeGateway, Reach, Way
from stoker.outbound.refused_addresses import forbidden, is_loopback
from stoker.wire.messages import DeviceSample, DirectGateway, GatewayAddress, HeldWorker, Hello

FACTS_MAX = 256
_WHOLE = re.compile(r"[0-9]{1,18}")
NUMBERS = {
    "vcpus": re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"),
    **dict.fromkeys(("memory_bytes", "disk_free", "disk_total"), _WHOLE),
}
"""Facts that control reads as numbers."""
CERTIFICATE_MAX = 8 * 1024


def reach_of(hello: Hello, peer: str, here: str) -> Reach:
    """Returns how the node behind a session is reached. `peer` is gRPC's name of the session's other end,
    such as ipv4:127.0.0.1:4711; `here` names the network namespace of this process, if that is known.

    A port in the clear counts only on this host, where its node names no address: the session comes from
    loopback, and the agent is in this network namespace. What comes through a forwarded port comes from
    loopback, too. A node may name an address for its port with TLS: what listens there must show the node's
    certificate before anything is sent.
    """
    family, _, address = peer.partition(":")
    host = unquote(address).rpartition(":")[0].strip("[]") if family in ("ipv4", "ipv6") else ""
    local = _local(hello.gateway, host, here)
    direct = _direct(hello.direct, host)
    ports: dict[Way, NodeGateway] = {} if local is None else {"local": local}
    return Reach(ports if direct is None else ports | {"direct": direct}, hello.tunnels)


def _local(gateway: GatewayAddress | None, host: str, here: str) -> NodeGateway | None:
    if gateway is None or not is_loopback(host) or not _is_port(gateway.port, gateway.token):
        return None
    if not here or gateway.namespace != here:
        return None
    return NodeGateway(host, gateway.port, gateway.token)


def _direct(gateway: DirectGateway | None, host: str) -> NodeGateway | None:
    if gateway is None or not _is_port(gateway.port, gateway.token):
        return None
    named = gateway.host or host
    if forbidden(named, allow_private=True) or (is_loopback(named) and not is_loopback(host)):
        return None
    if not 0 < len(gateway.certificate) <= CERTIFICATE_MAX:
        return None
    return NodeGateway(named, gateway.port, gateway.token, gateway.certificate)


def _is_port(port: int, token: str) -> bool:
    return 0 < port < 65_536 and _TOKEN.fullmatch(token) is not None


_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,256}")


def checked_hello(hello: Hello) -> Hello:
    """Returns what a node reports of itself, checked; only the node's own devices have samples. Raises
    InvalidReport."""
    for name, most in (("devices", DEVICES_MAX), ("workers", LISTED_MAX), ("attempts", LISTED_MAX)):
        few(name, getattr(hello, name), most)
    few("pods", hello.pods, LISTED_MAX)
    check_facts(hello.facts)
    _devices(hello)
    return checked(hello)


def check_facts(facts: Mapping[str, str]) -> None:
    """Raises InvalidReport. Facts that are read as numbers are numbers."""
    few("facts", facts, FACTS_MAX)
    for fact, value in facts.items():
        if not NAME.fullmatch(fact):
            raise no_name("facts", fact)
        if len(value) > FACT_MAX or "\x00" in value:
            raise InvalidReport(
                f"facts[{short_repr(fact)}] must be at most {FACT_MAX} characters without NUL"
            )
        if fact in NUMBERS and not NUMBERS[fact].fullmatch(value):
            raise InvalidReport(f"facts[{short_repr(fact)}] must be a number; got {short_repr(value)}")


def _devices(hello: Hello) -> None:
    seen: set[str] = set()
    for n, device in enumerate(hello.devices):
        name = f"devices[{n}]"
        checked(device, f"{name}.")
        if device.uuid in seen:
            raise InvalidReport(f"{name}.uuid {short_repr(device.uuid)} is named twice")
        seen.add(device.uuid)


def assigned_workers(
    reported: Iterable[HeldWorker], workers: Mapping[str, AssignedWorker]
) -> tuple[tuple[HeldWorker, ...], tuple[HeldWorker, ...]]:
    """Returns the workers that were assigned to this node, as assigned; and all others."""
    known, others = [], []
    for worker in reported:
        assigned = workers.get(worker.worker)
        try:
            known.append(_as_assigned(worker, assigned))
        except InvalidReport:
            others.append(worker)
    return tuple(known), tuple(others)


def _as_assigned(worker: HeldWorker, assigned: AssignedWorker | None) -> HeldWorker:
    if assigned is None or (worker.endpoint, worker.version) != (assigned.endpoint, assigned.version):
        raise InvalidReport(f"worker {short_repr(worker.worker)} is not one that control gave to this node")
    check_slots(worker.slots, assigned)
    stages = checked_stages(worker.cold_start)
    return replace(checked(worker), devices=assigned.devices, cold_start=stages)


def sampled(
    samples: Iterable[DeviceSample], devices: Collection[str]
) -> tuple[tuple[DeviceSample, ...], str | None]:
    """Returns the samples of the node's own devices; and why a sample is left out, or None if none is."""
    own, why = [], None
    for sample in samples:
        numbers = (sample.memory_used, sample.utilisation, sample.temperature, sample.ecc_uncorrected)
        if sample.uuid not in devices:
            why = f"samples: device {short_repr(sample.uuid)} is not one of this node"
        elif any(number is not None and not 0 <= number <= NUMBER_MAX for number in numbers):
            why = f"samples: a number of device {sample.uuid} is over {NUMBER_MAX}"
        elif sample.power is not None and not math.isfinite(sample.power):
            why = f"samples: power of device {sample.uuid} must be a number, not {sample.power}"
        else:
            own.append(checked(sample))
    return tuple(own), why
