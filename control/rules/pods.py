"""A pod's rules: what each action leads to, which changes make its container anew, and what its state reads.

Pure: a Pod goes in and a Pod, or a sentence that refuses, comes out; `now` is an argument. It places nothing
and stores nothing.

    wish:   RUNNING <── start, stop ──> EXITED     both ── delete ──> TERMINATED ── node: gone ──> forgotten

    version   another one: the container is made anew, the pod's own volume stays     (reset, most changes)
    restarts  a higher one: the same container is started again                       (start, restart)

A node answers for one (version, restarts) pair, so what it says of an earlier one is told apart and ignored.
A container that ends by itself leaves the wish as it is: the pod reads EXITED, and keeps its devices until
it is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from stoker.wire.messages import HeldPod, PodState, PortMapping, RegistryAuth

Action = Literal["start", "stop", "restart", "reset", "delete"]
ACTIONS: tuple[Action, ...] = ("start", "stop", "restart", "reset", "delete")

ENDED = frozenset({"exited", "failed", "gone"})
"""States of a container that does not run and will not without being told to."""


@dataclass(frozen=True, slots=True)
class PodBody:
    """What was asked for. All but `locked` is part of how the container is made. Sizes are in GB; None: no
    limit. `registry`, `network_volume` and `template` are ids, "" for none; `ports` read "8888/http". `asked`
    holds what is accepted and told again, and decides nothing."""

    image: str
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    registry: str = ""
    disk_gb: int | None = None
    volume_gb: int | None = None
    volume_path: str = "/workspace"
    network_volume: str = ""
    template: str = ""
    compute: str = "GPU"
    gpu_types: tuple[str, ...] = ()
    gpu_count: int = 1
    vcpus: int | None = None
    data_centers: tuple[str, ...] = ()
    cuda_versions: tuple[str, ...] = ()
    global_networking: bool = False
    locked: bool = False
    asked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the node last said of the container of this version and restarts. An empty `state`: nothing."""

    version: int = 0
    restarts: int = 0
    state: str = ""
    reason: str = ""
    exit_code: int | None = None
    ports: tuple[PortMapping, ...] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """`node` is "" before the first start; `devices` are the last ones that it had, `gpu_type` their name.
    `change` says in words what happened at `changed_at`. A higher `revision` is what was stored later."""

    id: str
    account: str
    name: str
    body: PodBody
    wish: str = "RUNNING"
    version: int = 1
    restarts: int = 0
    node: str = ""
    devices: tuple[str, ...] = ()
    gpu_type: str = ""
    seen: Seen = Seen()
    created_at: float = 0.0
    changed_at: float = 0.0
    change: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    revision: int = 0

    @property
    def holds(self) -> bool:
        """Whether its devices are taken: until its node says that the container has ended."""
        return bool(self.node) and (self.wish == "RUNNING" or self.seen.state in ("creating", "running"))

    @property
    def forgotten(self) -> bool:
        """Its node has nothing of it any more; the row stays for the bill."""
        return self.wish == "TERMINATED" and (not self.node or self.seen.state == "gone")

    @property
    def now_seen(self) -> Seen:
        """What was said of the container as it is wanted now; nothing, if that is about an earlier one."""
        current = (self.seen.version, self.seen.restarts) == (self.version, self.restarts)
        return self.seen if current else Seen()


@dataclass(frozen=True, slots=True)
class WantedPod:
    """A pod as it was read, with what its image is pulled with where the store keeps that."""

    pod: Pod
    login: RegistryAuth | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    why: str


@dataclass(frozen=True, slots=True)
class Reading:
    """`desired` is RUNNING, EXITED or TERMINATED; `status` says more, and `reason` why, in a sentence."""

    desired: str
    status: str
    reason: str = ""


# ---- what callers do ----------------------------------------------------------------------------


def act(pod: Pod, action: Action, now: float) -> Pod | Refusal:
    """The pod after this action; the same pod where there is nothing to do. Whoever starts one places it,
    see `placed`."""
    if pod.body.locked and action != "start":
        return Refusal(f"pod {pod.id} is locked: set locked to false before you {action} it")
    match action:
        case "start":
            return _start(pod, now)
        case "stop":
            return pod if pod.wish == "EXITED" else _changed(pod, "Exited by User", now, wish="EXITED")
        case "restart":
            if pod.wish != "RUNNING":
                return Refusal(f"pod {pod.id} is stopped: start it, there is nothing to restart")
            return _changed(pod, "Restarted by User", now, restarts=pod.restarts + 1)
        case "reset":
            return _changed(pod, "Reset by User", now, version=pod.version + 1)
        case "delete":
            # A container that went by itself is not what the node will be asked for: all that is left.
            seen = Seen() if pod.seen.state == "gone" else pod.seen
            return _changed(pod, "Terminated by User", now, wish="TERMINATED", ended_at=now, seen=seen)


def _start(pod: Pod, now: float) -> Pod:
    if pod.wish == "RUNNING" and pod.now_seen.state not in ENDED:
        return pod
    return _changed(pod, "Started by User", now, wish="RUNNING", restarts=pod.restarts + 1)


def placed(pod: Pod, node: str, devices: tuple[str, ...], gpu_type: str) -> Pod:
    """A container keeps the devices that it was made with, so others make it anew."""
    elsewhere = bool(pod.node) and (pod.node, pod.devices) != (node, devices)
    return replace(pod, node=node, devices=devices, gpu_type=gpu_type, version=pod.version + elsewhere)


def changed(pod: Pod, body: PodBody, name: str, now: float) -> Pod | Refusal:
    """The pod with this body and name. Whatever goes into the container makes it anew."""
    anew = replace(body, locked=pod.body.locked) != pod.body
    if anew and pod.body.locked and body.locked:
        return Refusal(f"pod {pod.id} is locked: only name and locked can change, the rest would reset it")
    after = replace(pod, body=body, name=name)
    return _changed(after, "Updated by User", now, version=pod.version + 1) if anew else after


def _changed(pod: Pod, change: str, now: float, **fields: Any) -> Pod:
    return replace(pod, change=change, changed_at=now, **fields)


# ---- what nodes say -----------------------------------------------------------------------------


def told(pod: Pod, state: PodState, now: float) -> Pod | None:
    """The pod after what its node reports; None where that is about an earlier version or start."""
    if (state.version, state.restarts) != (pod.version, pod.restarts):
        return None
    ports = state.ports if state.state == "running" else ()
    seen = Seen(state.version, state.restarts, state.state, state.reason, state.exit_code, ports)
    after = replace(pod, seen=seen)
    before = pod.now_seen.state
    if state.state == "running" and before != "running":
        began = now if state.started_ms is None else state.started_ms / 1000
        return replace(after, started_at=began)
    if state.state in ENDED and before not in ENDED and pod.wish == "RUNNING":
        return _changed(after, "Exited by itself", now)
    return after


def held(pod: Pod, found: HeldPod | None) -> Pod:
    """The pod after its node's Hello: what that does not name, it does not have. Reports follow."""
    if found is None:
        return replace(pod, seen=Seen())
    if (found.version, found.restarts, found.state) == (pod.seen.version, pod.seen.restarts, pod.seen.state):
        return pod
    return replace(pod, seen=Seen(found.version, found.restarts, found.state))


# ---- what it reads ------------------------------------------------------------------------------


def reads(pod: Pod, *, connected: bool) -> Reading:
    """`connected`: whether its node is; what that last said stands until it comes back."""
    seen = pod.now_seen
    if pod.wish == "TERMINATED":
        return Reading("TERMINATED", "TERMINATED", "" if pod.forgotten else "its container is being removed")
    if pod.wish == "EXITED" and not pod.holds:
        return Reading("EXITED", "EXITED")
    desired = "EXITED" if pod.wish == "EXITED" or seen.state in ENDED else "RUNNING"
    if not connected:
        return Reading(desired, "ERROR", f"node {pod.node} is not connected: this is what it last said")
    if pod.wish == "EXITED":
        return Reading(desired, "RUNNING", "it is being stopped")
    return Reading(desired, *_running(pod, seen))


def _running(pod: Pod, seen: Seen) -> tuple[str, str]:
    match seen.state:
        case "creating":
            return "STARTING", seen.reason
        case "running":
            return "RUNNING", seen.reason
        case "exited":
            code = "" if seen.exit_code is None else f" with exit code {seen.exit_code}"
            return "EXITED", seen.reason or f"its container ended by itself{code}"
        case "failed":
            return "ERROR", seen.reason or "its container could not be started"
        case "gone":
            return "ERROR", seen.reason or "its container was removed from outside"
    again = pod.seen.version == pod.version
    return ("STARTING" if again else "PROVISIONING"), "its node has not said anything of it yet"
