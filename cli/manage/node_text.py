"""A node in words for people: in lists, in `stoker node get`, and while it is drained. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stoker.wire.sizes import in_words

COLUMNS = ("id", "name", "state", "devices", "workers", "jobs", "disk", "agent")
"""The columns of a list at a terminal. With ids of 14 characters, its rows fit in 80."""

_MAKERS_WORDS = re.compile(r"\b(NVIDIA|AMD|Intel|Processor|CPU|\d+-Core)\b|\((R|TM)\)", re.IGNORECASE)


def left_on(node: Mapping[str, Any]) -> str:
    """Returns the workers and jobs of a node in words; empty where there is no worker."""
    if not node["workers"]:
        return ""
    return f"{number_of(node['workers'], 'worker')}, {number_of(node['jobs'], 'job')}"


def number_of(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def lines_of(node: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines that `stoker node get` prints: what matters first, one line for each device, for each
    version that is kept away, and for each of the other facts."""
    yield f"id: {node['id']}"
    yield f"name: {node['name']}"
    yield f"state: {node['state']}" + (", drained" if node["drained"] else "")
    for name in ("agentVersion", "dataCenterId", "lastSeenAt"):
        if name in node:
            yield f"{name}: {node[name]}"
    yield f"work: {left_on(node) or 'no worker'}, {number_of(node['pods'], 'pod')}"
    if "diskFreeInBytes" in node:
        total = node.get("diskTotalInBytes")
        of = f" of {in_words(total)}" if total else ""
        yield f"disk: {in_words(node['diskFreeInBytes'])} free{of}"
    yield from _block("devices", [_device(one) for one in node["devices"]])
    yield from _block("avoided for", _avoided_for(node))
    held = [f"{one['name']} ({in_words(one.get('sizeInBytes') or 0)})" for one in node.get("weights", ())]
    yield from _block("weights", held)
    yield from _block("labels", [f"{name}={value}" for name, value in sorted(node["labels"].items())])
    yield from _block("facts", [f"{name}: {value}" for name, value in sorted(node["facts"].items())])


def _avoided_for(node: Mapping[str, Any]) -> list[str]:
    found = node.get("avoidedFor") or ()
    return [f"{one['endpointId']} until {one['untilAt']}: {one['reason']}" for one in found]


def where_avoided(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields what stands below a list of nodes: a line for each endpoint that is kept away from a node."""
    for node in nodes:
        yield from (f"{node['name']} is avoided for {' '.join(one.split())}" for one in _avoided_for(node))


def avoided_node(one: Mapping[str, Any]) -> str:
    """Returns a node that is avoided for an endpoint, in a record of either."""
    return f"{one['endpointId']} on {one['nodeId']} until {one['untilAt']} ({one['reason']})"


def _block(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from (f"  {' '.join(line.split())}" for line in lines)


def _device(device: Mapping[str, Any]) -> str:
    told = []
    if "memoryUsedInBytes" in device and "memoryInBytes" in device:
        told.append(f"{in_words(device['memoryUsedInBytes'])} of {in_words(device['memoryInBytes'])}")
    if "utilization" in device:
        told.append(f"{device['utilization']} % busy")
    if "temperature" in device:
        told.append(f"{device['temperature']} °C")
    if holders := device["heldBy"]:
        told.append(f"held by {', '.join(one.get('workerId') or one.get('podId') or '?' for one in holders)}")
    if "ill" in device:
        told.append(f"out of use: {device['ill']}")
    return f"{device['id']} {device['name']}" + (f": {', '.join(told)}" if told else "")


def row_of(node: Mapping[str, Any]) -> list[str]:
    """Returns the cells of `COLUMNS`."""
    short = [{"name": _short(str(one["name"]))} for one in node["devices"]]
    free = node.get("diskFreeInBytes")
    return [
        str(node["id"]),
        str(node["name"]),
        _state(node),
        counted(short),
        str(node["workers"]),
        str(node["jobs"]),
        "" if free is None else in_words(free),
        str(node.get("agentVersion") or ""),
    ]


def _state(node: Mapping[str, Any]) -> str:
    if not node["drained"]:
        return str(node["state"])
    return "drained" if node["state"] == "connected" else f"{node['state']}, drained"


def _short(device: str) -> str:
    """Returns the name of a device without its maker and what all such devices are called."""
    return " ".join(_MAKERS_WORDS.sub(" ", device).split()) or device


def counted(devices: Sequence[Mapping[str, Any]]) -> str:
    """Returns the devices of a node for a list, as in `8 x NVIDIA H200, Xeon`."""
    names = Counter(str(one["name"]) for one in devices)
    return ", ".join(name if number == 1 else f"{number} x {name}" for name, number in names.items())
