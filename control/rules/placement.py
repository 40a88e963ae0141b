"""The placement of work. Pure: which devices a new worker or pod gets.

It starts nothing. A refusal is a message that the caller of a waiting job may read.

    needs -> choices, the best first:  each type named  |  a GPU, then a MIG device, then (compute "") a CPU
    a choice -> every node that may take it -> as many free devices of one name as requested -> the best
    no choice fits -> what was sought, and what each node lacks of it, the nearest first
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.control.rules.needs import Needs
from stoker.control.rules.weights import Standing
from stoker.wire.messages import Device

CPU_WORKERS = 16
"""Handler processes that one CPU device carries where it is not specified how many processors they take: it
has no memory of its own to fill."""

MAX_NODES = 3
"""How many nodes a refusal names."""

HOST_MEMORY = "host memory"
"""The key in `NodeRoom.taken` of the part of the host's memory that is taken; devices have their uuids."""

_ROUNDING = 1e-9
"""Shares are sums of fractions: nine ninths fill a device, and are a little more than one as floats add."""


class NodeRoom(Struct, frozen=True):
    """A connected node. `taken`: the part of each device, and of the host's memory, that workers and pods
    take (`charges`), 1.0 being all of it. `unhealthy` and `unfit` say of a device why nothing may go there,
    and `closed` of the whole node, each as the end of a sentence about it. Facts that count: cuda, vcpus,
    memory_bytes, data_center, gpu_sharing, label.<name>. `weights`: how the node stands to those that the
    worker needs; where others `occupied` their room the node is closed, too, until these have ended."""

    node: str
    devices: tuple[Device, ...]
    taken: Mapping[str, float]
    unhealthy: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    closed: str = ""
    unfit: Mapping[str, str] = field(default_factory=dict)
    weights: Standing = field(default_factory=Standing)


class Placement(Struct, frozen=True):
    """A place for a worker or pod. `why`: what favoured the node besides its devices, as the end of a
    sentence about it."""

    node: str
    devices: tuple[str, ...]
    why: str = ""


class NoPlacement(Struct, frozen=True):
    """The refusal of a place. `why` begins with "throttled" where a node could take the worker if others
    left, else with "no capacity"."""

    why: str

    @property
    def may_come(self) -> bool:
        """True if a node could take the worker once others have left."""
        return self.why.startswith("throttled")


class _Choice(Struct, frozen=True):
    """Devices of these kinds; of this name, if one is set. `without_gpus`: only on nodes that have none."""

    kinds: tuple[str, ...]
    name: str = ""
    without_gpus: bool = False

    def suits(self, device: Device) -> bool:
        return device.kind in self.kinds and (not self.name or _plain(device.name) == self.name)


_CPU = _Choice(("cpu",))
_CPU_OF_CPU_NODES = _Choice(("cpu",), without_gpus=True)
"""For work that a CPU will do for where there is no GPU: beside a GPU it waits for that one."""


def place(rooms: Sequence[NodeRoom], needs: Needs) -> Placement | NoPlacement:
    """Returns devices for one more worker or pod: the first choice that fits anywhere. Nodes that hold the
    worker's weights go first, and for work on CPUs those without GPUs. Of nodes that are alike in that, whole
    devices come from the one with the least taken; a share goes to the fullest device that has room for it.
    All devices of one worker are on one node and of one name."""
    for choice in _choices(needs):
        found = [one for room in rooms for one in _found(room, needs, choice)]
        if found:
            _, chosen = min(found, key=lambda one: one[0])
            return chosen
    return NoPlacement(_why(rooms, needs))


def would_be_on_cpus(rooms: Iterable[NodeRoom], needs: Needs) -> bool:
    """Returns whether a worker would run on a CPU: where that is requested, or where a CPU will do and there
    are nodes, of which none has a GPU for the worker. Who holds what does not count."""
    *others, last = _choices(needs)
    if last is not _CPU_OF_CPU_NODES:
        return last is _CPU
    known = False
    for room in rooms:
        known = known or not _has_gpus(room)
        if any(not _node_lacks(room, needs, one) and any(map(one.suits, room.devices)) for one in others):
            return False
    return known


def capacity(rooms: Iterable[NodeRoom], needs: Needs) -> int:
    """Returns how many workers could run if nothing else did and no CPU had more than one of them."""
    return sum(_capacity_of(room, needs) for room in rooms if not room.closed)


def _capacity_of(room: NodeRoom, needs: Needs) -> int:
    for choice in _choices(needs):
        devices = [one for one in room.devices if choice.suits(one) and _whole(room, one, needs)]
        if devices and not _node_lacks(room, needs, choice):
            if "cpu" in choice.kinds:
                return 1
            names = Counter(device.name for device in devices)
            return sum(
                number // needs.gpu_count * int(1 / needs.share + _ROUNDING) for number in names.values()
            )
    return 0


def after(rooms: Sequence[NodeRoom], placement: Placement, needs: Needs) -> list[NodeRoom]:
    """Returns the rooms as they are after this placement."""
    return [_with(room, placement, needs) if room.node == placement.node else room for room in rooms]


def _with(room: NodeRoom, placement: Placement, needs: Needs) -> NodeRoom:
    more = charges(room.devices, room.facts, needs, placement.devices)
    return replace(room, taken=dict(Counter(room.taken) + Counter(more)))


def charges(
    devices: Iterable[Device], facts: Mapping[str, str], needs: Needs, chosen: Collection[str]
) -> dict[str, float]:
    """Returns the part of each device of a node, and of the host's memory, that work on the `chosen` devices
    takes. Work on GPUs takes CPU beside them."""
    there = list(devices)
    found = {device.uuid: takes(device, needs, facts) for device in there if device.uuid in chosen}
    cpu = next((device for device in there if device.kind == "cpu"), None)
    if cpu is not None and found and cpu.uuid not in found:
        found[cpu.uuid] = takes(cpu, needs, facts) * (1 if needs.vcpus else len(found))
    if found and (memory := _of_memory(needs, facts)):
        found[HOST_MEMORY] = memory
    return found


def takes(device: Device, needs: Needs, facts: Mapping[str, str]) -> float:
    """Returns the part of this device that a worker with these needs takes."""
    if device.kind != "cpu":
        return needs.share
    vcpus = _number(facts.get("vcpus", ""))
    return 1 / CPU_WORKERS if needs.vcpus is None or not vcpus else needs.vcpus / vcpus


def _of_memory(needs: Needs, facts: Mapping[str, str]) -> float:
    memory = _number(facts.get("memory_bytes", ""))
    return 0.0 if needs.memory_bytes is None or not memory else needs.memory_bytes / memory


def _choices(needs: Needs) -> list[_Choice]:
    if needs.compute == "CPU":
        return [_CPU]
    if needs.gpu_types:
        return [_Choice(("gpu", "mig"), _plain(name)) for name in needs.gpu_types]
    choices = [_Choice(("gpu",))]
    if needs.gpu_count == 1:
        choices.append(_Choice(("mig",)))
    if needs.compute == "" and not _needs_gpu(needs):
        choices.append(_CPU_OF_CPU_NODES)
    return choices


def _needs_gpu(needs: Needs) -> bool:
    return needs.gpu_count > 1 or bool(needs.gpu_memory_bytes or needs.min_cuda or needs.cuda_versions)


def _count(needs: Needs, choice: _Choice) -> int:
    return 1 if "cpu" in choice.kinds else needs.gpu_count


def _has_gpus(room: NodeRoom) -> bool:
    return any(device.kind != "cpu" for device in room.devices)


def _found(
    room: NodeRoom, needs: Needs, choice: _Choice
) -> Iterator[tuple[tuple[Standing, bool, float, float, str, int, str], Placement]]:
    """Yields the places on this node, at most one for each name of its devices; with a rank, the least is
    best."""
    if room.closed or room.weights.occupied or _node_lacks(room, needs, choice):
        return
    free = [device for device in room.devices if choice.suits(device) and _takes_more(room, device, needs)]
    taken = sum(room.taken.get(device.uuid, 0.0) for device in room.devices if device.kind in choice.kinds)
    for name in dict.fromkeys(device.name for device in free):
        same = [device for device in free if device.name == name]
        if needs.share < 1.0:
            same.sort(key=lambda device: -room.taken.get(device.uuid, 0.0))
        chosen = same[: _count(needs, choice)]
        if len(chosen) == _count(needs, choice):
            first = chosen[0]
            fullest = -room.taken.get(first.uuid, 0.0) if needs.share < 1.0 else 0.0
            scarce = "cpu" in choice.kinds and _has_gpus(room)
            rank = (room.weights, scarce, fullest, taken, room.node, first.index, first.uuid)
            yield rank, Placement(room.node, tuple(device.uuid for device in chosen), room.weights.why)


def _takes_more(room: NodeRoom, device: Device, needs: Needs) -> bool:
    return _whole(room, device, needs) and device.uuid not in room.unhealthy and _is_free(room, device, needs)


def _whole(room: NodeRoom, device: Device, needs: Needs) -> bool:
    """Returns whether the worker would fit on the device if the device were healthy and free."""
    if device.uuid in room.unfit or takes(device, needs, room.facts) > 1.0 + _ROUNDING:
        return False
    if device.kind == "cpu":
        return _of_memory(needs, room.facts) <= 1.0 + _ROUNDING
    least = needs.gpu_memory_bytes
    return least is None or (device.memory_total is not None and device.memory_total >= least)


def _is_free(room: NodeRoom, device: Device, needs: Needs) -> bool:
    if device.kind == "cpu" and _memory_left(room) + _ROUNDING < _of_memory(needs, room.facts):
        return False
    return room.taken.get(device.uuid, 0.0) + takes(device, needs, room.facts) <= 1.0 + _ROUNDING


def _memory_left(room: NodeRoom) -> float:
    return 1.0 - room.taken.get(HOST_MEMORY, 0.0)


def _node_lacks(room: NodeRoom, needs: Needs, choice: _Choice) -> str:
    """Returns what rules the node out, whatever is free there, as the end of a sentence about it; "" for
    nothing."""
    facts = room.facts
    where = facts.get("data_center", "")
    if needs.data_centers and where not in needs.data_centers:
        return f"is in data center {where}" if where else "reports no data center"
    for name, value in needs.labels.items():
        if facts.get(f"label.{name}") != value:
            actual = facts.get(f"label.{name}")
            return f"has no label {name}" if actual is None else f"has the label {name}={actual}"
    if choice.without_gpus and _has_gpus(room):
        return "has GPUs, and only work that requests a CPU runs beside them"
    return "" if "cpu" in choice.kinds else _gpus_lack(facts, needs)


def _gpus_lack(facts: Mapping[str, str], needs: Needs) -> str:
    cuda = facts.get("cuda", "")
    if (needs.min_cuda or needs.cuda_versions) and not _version(cuda):
        return "does not tell its CUDA version"
    if needs.min_cuda and _version(cuda) < _version(needs.min_cuda):
        return f"has CUDA {cuda}"
    if needs.cuda_versions and _version(cuda) not in map(_version, needs.cuda_versions):
        return f"has CUDA {cuda}"
    if needs.share < 1.0 and facts.get("gpu_sharing") != "yes":
        why = facts.get("gpu_sharing", "").partition(": ")[2] or "it does not tell what each process holds"
        return f"shares no GPU: {why}"
    return ""


def _version(text: str) -> tuple[int, ...]:
    """Returns a version's numbers, by which versions compare: 12.10 is later than 12.9. Empty where the text
    is not a version."""
    parts = text.strip().split(".")
    return tuple(int(part) for part in parts) if all(map(str.isdecimal, parts)) else ()


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 < found < float("inf") else None


def _plain(name: str) -> str:
    """Returns the name with single spaces: some published names of GPUs have two where the driver has one."""
    return " ".join(name.split())


# ---- why there is no place


class _Lack(Struct, frozen=True, order=True):
    """The reason why one node does not take the work; `never` marks a reason that no worker's end would
    change."""

    never: bool
    node: str
    lacks: str


def _why(rooms: Sequence[NodeRoom], needs: Needs) -> str:
    if not rooms:
        return "no capacity: no node is connected"
    if len({room.closed for room in rooms}) == 1 and rooms[0].closed:
        return f"no capacity: every connected node {rooms[0].closed}"
    lacks = sorted(_lack(room, needs) for room in rooms)
    listed = [f"node {lack.node} {lack.lacks}" for lack in lacks[:MAX_NODES]]
    if len(lacks) > MAX_NODES:
        listed.append(f"and {len(lacks) - MAX_NODES} more")
    reason = "no capacity" if all(lack.never for lack in lacks) else "throttled"
    return f"{reason}: no node has {_sought(needs)}: {'; '.join(listed)}"


def _sought(needs: Needs) -> str:
    parts = [_sought_device(needs)]
    if needs.compute != "CPU":
        parts += _sought_of_gpus(needs)
    if needs.data_centers:
        parts.append(f"in {' or '.join(needs.data_centers)}")
    parts += [f"labelled {name}={value}" for name, value in sorted(needs.labels.items())]
    return " ".join(parts)


def _sought_device(needs: Needs) -> str:
    if needs.compute == "CPU":
        sought = "a free CPU" if needs.vcpus is None else f"{needs.vcpus} free vCPUs"
        return sought if needs.memory_bytes is None else f"{sought} with {_gb(needs.memory_bytes)} of memory"
    if needs.share < 1.0:
        return f"{needs.share:.0%} of {'a GPU' if needs.gpu_count == 1 else f'{needs.gpu_count} GPUs'} free"
    if _choices(needs)[-1] is _CPU_OF_CPU_NODES:
        return "a free device"
    return "a free GPU" if needs.gpu_count == 1 else f"{needs.gpu_count} free GPUs"


def _sought_of_gpus(needs: Needs) -> Iterator[str]:
    if needs.gpu_types:
        yield f"of {' or '.join(needs.gpu_types)}"
    if needs.gpu_memory_bytes is not None:
        yield f"with {_gb(needs.gpu_memory_bytes)} of memory"
    if needs.min_cuda:
        yield f"with CUDA {needs.min_cuda} or later"
    if needs.cuda_versions:
        yield f"with CUDA {' or '.join(needs.cuda_versions)}"


def _lack(room: NodeRoom, needs: Needs) -> _Lack:
    if room.closed:
        return _Lack(True, room.node, room.closed)
    choices = _choices(needs)
    lacking = {choice: _node_lacks(room, needs, choice) for choice in choices}
    possible = [choice for choice in choices if not lacking[choice]]
    suited = [device for device in room.devices if any(choice.suits(device) for choice in possible)]
    barred = [choice for choice in choices if lacking[choice] and any(map(choice.suits, room.devices))]
    if not possible or (barred and not suited):
        return _Lack(True, room.node, lacking[(barred or choices)[0]])
    count = min(_count(needs, choice) for choice in possible)
    enough = _alike([device for device in suited if _whole(room, device, needs)], count)
    if len(enough) < count:
        return _Lack(True, room.node, _too_few(room, suited, enough, needs))
    return _Lack(False, room.node, room.weights.occupied or _taken(room, enough, needs))


def _alike(devices: list[Device], count: int) -> list[Device]:
    """Returns the devices of the most frequent name, where several are requested."""
    if count == 1 or not devices:
        return devices
    (name, _), *_ = Counter(device.name for device in devices).most_common(1)
    return [device for device in devices if device.name == name]


def _too_few(room: NodeRoom, suited: Sequence[Device], enough: Sequence[Device], needs: Needs) -> str:
    barred = [room.unfit[device.uuid] for device in suited if device.uuid in room.unfit]
    if barred:
        return barred[0]
    if enough:
        return f"has {len(enough)} in all"
    if suited and needs.compute == "CPU":
        memory = _of_memory(needs, room.facts) > 1.0 + _ROUNDING
        return f"has {_memory(room) if memory else room.facts['vcpus']} in all"
    others = [device for device in room.devices if device.kind != "cpu"] or room.devices
    found = [_gb_of(device, needs) for device in suited or others]
    return f"has {', '.join(dict.fromkeys(found))}" if found else "has no device"


def _taken(room: NodeRoom, enough: Sequence[Device], needs: Needs) -> str:
    unhealthy = [device.uuid for device in enough if device.uuid in room.unhealthy]
    text = (
        f"has {_free(room, [device for device in enough if device.uuid not in room.unhealthy], needs)} free"
    )
    if not unhealthy:
        return text
    others = f", and {len(unhealthy) - 1} more" if len(unhealthy) > 1 else ""
    return f"{text}; device {unhealthy[0]} is out of placement: {room.unhealthy[unhealthy[0]]}{others}"


def _free(room: NodeRoom, healthy: Sequence[Device], needs: Needs) -> str:
    """Returns what is left, in the unit of the request; parts are rounded down."""
    if needs.compute == "CPU" and _memory_left(room) + _ROUNDING < _of_memory(needs, room.facts):
        return f"{_memory(room, max(_memory_left(room), 0.0))} of memory"
    left = max((1.0 - room.taken.get(device.uuid, 0.0) for device in healthy), default=0.0) + _ROUNDING
    vcpus = _number(room.facts.get("vcpus", ""))
    if needs.compute == "CPU" and needs.vcpus is not None and vcpus:
        return f"{int(max(left, 0.0) * vcpus * 100) / 100:g}" if left * vcpus >= 0.01 else "none"
    if needs.share < 1.0 and needs.gpu_count == 1 and left >= 0.01:
        return f"{int(left * 100)}%"
    return str(sum(1 for device in healthy if _is_free(room, device, needs)) or "none")


def _memory(room: NodeRoom, share: float = 1.0) -> str:
    return _gb(int(float(room.facts["memory_bytes"]) * share))


def _gb_of(device: Device, needs: Needs) -> str:
    if device.memory_total is None:
        asked = needs.gpu_memory_bytes is not None and device.kind != "cpu"
        return f"{device.name} (memory unknown)" if asked else device.name
    of_host = " of the host's" if device.unified_memory else ""
    return f"{device.name} ({_gb(device.memory_total)}{of_host})"


def _gb(size: int) -> str:
    return f"{size / (1 << 30):.4g} GiB"
