"""Where a node stands and how it is labelled, as its operator says, and what is known of its host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address

from stoker.agent.devices import NvmlSampler
from stoker.agent.host_facts import host_facts, sees_host_processes
from stoker.agent.processor import Processor
from stoker.cli.errors import CliError

DATA_CENTER, LABELS = "STOKER_DATA_CENTER", "STOKER_LABELS"
PUBLIC_IP = "STOKER_PUBLIC_IP"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,62}")


def place_facts(
    data_center: str | None, labels: Iterable[str], sampler: NvmlSampler, given: Mapping[str, str]
) -> dict[str, str]:
    """What the node tells of its place, its host and its driver. An option wins over the environment."""
    named = labels_of(given.get(LABELS, "").split(","), LABELS) | labels_of(labels, "--label")
    memory = Processor().device.memory_total
    told = sampler.facts(host_pids=sees_host_processes())
    return host_facts(data_center or given.get(DATA_CENTER), named, memory) | told


def public_ip_fact(address: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """Where the ports of pods are reached, if the operator says so. Raises CliError."""
    said = address or given.get(PUBLIC_IP)
    if not said:
        return {}
    try:
        return {"public_ip": str(IPv4Address(said))}
    except ValueError:
        raise CliError(f"--public-ip must be an IPv4 address; got {said!r}") from None


def labels_of(given: Iterable[str], source: str) -> dict[str, str]:
    """From `name=value`, each; empty ones are none. Raises CliError."""
    found: dict[str, str] = {}
    for text in filter(None, map(str.strip, given)):
        name, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise CliError(
                f"{source}: {text!r} is not a label; one reads name=value, "
                "and the name has letters, digits and _./- only"
            )
        found[name] = value.strip()
    return found
