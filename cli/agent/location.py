"""A node's data center, labels and public address, as its operator configured them, and facts of its host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address

from stoker.agent.host.devices.cpu_device import CpuDevice
from stoker.agent.host.devices.devices import NvmlSampler
from stoker.agent.host.facts import host_facts, sees_host_processes
from stoker.cli.errors import CliError

DATA_CENTER, LABELS = "STOKER_DATA_CENTER", "STOKER_LABELS"
PUBLIC_IP = "STOKER_PUBLIC_IP"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,62}")


def location_facts(
    data_center: str | None, labels: Iterable[str], sampler: NvmlSampler, variables: Mapping[str, str]
) -> dict[str, str]:
    """Returns the node's data center and labels, and facts of its host and driver. Options override the
    environment."""
    named = labels_of(variables.get(LABELS, "").split(","), LABELS) | labels_of(labels, "--label")
    memory = CpuDevice().device.memory_total
    driver = sampler.facts(host_pids=sees_host_processes())
    return host_facts(data_center or variables.get(DATA_CENTER), named, memory) | driver


def public_ip_fact(address: str | None, variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the address of pods' ports as a fact, if it is configured. Raises CliError."""
    configured = address or variables.get(PUBLIC_IP)
    if not configured:
        return {}
    try:
        return {"public_ip": str(IPv4Address(configured))}
    except ValueError:
        raise CliError(f"--public-ip must be an IPv4 address; got {configured!r}") from None


def labels_of(texts: Iterable[str], source: str) -> dict[str, str]:
    """Parses labels `name=value`; empty texts are ignored. Raises CliError."""
    found: dict[str, str] = {}
    for text in filter(None, map(str.strip, texts)):
        name, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise CliError(
                f"{source}: {text!r} is not a label; one reads name=value, "
                "and the name has letters, digits and _./- only"
            )
        found[name] = value.strip()
    return found
