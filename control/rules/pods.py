"""The rules of a pod: what each action does, which changes recreate its container, and which state is shown.

Pure: takes a Pod and returns a Pod or a Refusal; `now` is an argument. Places nothing and stores nothing.

    wish:   RUNNING <── start, stop ──> EXITED     both ── delete ──> TERMINATED ── node: gone ──> forgotten

    version   a new one: the container is created again, the pod's own volume stays   (reset, most changes)
    restarts  a higher one: the same container is started again                       (start, restart)

A node's report is about one (version, restarts) pair, so reports about earlier ones are ignored. When a
container ends by itself, the wish does not change: the pod shows EXITED, and keeps its devices until it is
stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.wire.messages import HeldPod, PodState, PortMapping, RegistryAuth
from stoker.wire.records import Hiding

Action = Literal["start", "stop", "restart", "reset", "delete"]

ENDED = frozenset({"exited", "failed", "gone"})
"""The states of a container that will not run again without an action."""


class PodBody(Struct, frozen=True):
    """The fields of a pod that its caller requested.

    All fields but `locked` belong to the container. Sizes are in GB; None means no limit. `registry`,
    `network_volume` and `template` are ids, "" for none. A port is "8888/http". `asked` holds fields that are
    returned as they were requested, and have no effect.
    """

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
    min_cuda: str = ""
    global_networking: bool = False
    locked: bool = False
    asked: Mapping[str, Any] = field(default_factory=dict)


class ContainerReport(Struct, frozen=True):
    """The node's last report of the container of this version and restarts. `state` is "" before any
    report."""

    version: int = 0
    restarts: int = 0
    state: str = ""
    reason: str = ""
    exit_code: int | None = None
    ports: tuple[PortMapping, ...] = ()


class Pod(Hiding, frozen=True):
    """A pod.

    node      "" before the first start
    devices   those that it has, or had last; `gpu_type` is their name
    change    a text that says what happened at `changed_at`
    revision  higher for what was stored later
    api_key   the pod's own key, which may read and stop it, and is revoked with it
    """

    HIDDEN = ("api_key",)

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
    seen: ContainerReport = ContainerReport()
    created_at: float = 0.0
    changed_at: float = 0.0
    change: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    revision: int = 0
    api_key: str = ""

    @property
    def holds(self) -> bool:
        """True while the pod holds devices: until its node reports that the container has ended."""
        return bool(self.node) and (self.wish == "RUNNING" or self.seen.state in ("creating", "running"))

    @property
    def forgotten(self) -> bool:
        """True if the pod was deleted, and its node has nothing of it any more. The row stays for the
        bill."""
        return self.wish == "TERMINATED" and (not self.node or self.seen.state == "gone")

    @property
    def now_seen(self) -> ContainerReport:
        """The last report if it is about the current version and restarts; otherwise an empty one."""
        current = (self.seen.version, self.seen.restarts) == (self.version, self.restarts)
        return self.seen if current else ContainerReport()


class WantedPod(Hiding, frozen=True):
    """A pod as it is stored, with the credentials of its registry if the store has them."""

    HIDDEN = ("login",)

    pod: Pod
    login: RegistryAuth | None = None


class ActionRefused(Struct, frozen=True):
    why: str


class PodStatus(Struct, frozen=True):
    """The state of a pod over HTTP: `desired` is RUNNING, EXITED or TERMINATED; `status` is more precise, and
    `reason` says why."""

    desired: str
    status: str
    reason: str = ""


# ---- actions of callers -------------------------------------------------------------------------


def act(pod: Pod, action: Action, now: float) -> Pod | ActionRefused:
    """Returns the pod after this action; the same pod if nothing changes. After a start the caller places it,
    see `placed`."""
    if pod.body.locked and action != "start":
        return ActionRefused(f"pod {pod.id} is locked: set locked to false before you {action} it")
    match action:
        case "start":
            return _start(pod, now)
        case "stop":
            return pod if pod.wish == "EXITED" else _changed(pod, "Exited by User", now, wish="EXITED")
        case "restart":
            if pod.wish != "RUNNING":
                return ActionRefused(f"pod {pod.id} is stopped: start it, there is nothing to restart")
            return _changed(pod, "Restarted by User", now, restarts=pod.restarts + 1)
        case "reset":
            return _changed(pod, "Reset by User", now, version=pod.version + 1)
        case "delete":
            # If the container was removed from outside, the node must still remove the volume and report it.
            seen = ContainerReport() if pod.seen.state == "gone" else pod.seen
            return _changed(pod, "Terminated by User", now, wish="TERMINATED", ended_at=now, seen=seen)


def _start(pod: Pod, now: float) -> Pod:
    if pod.wish == "RUNNING" and pod.now_seen.state not in ENDED:
        return pod
    return _changed(pod, "Started by User", now, wish="RUNNING", restarts=pod.restarts + 1)


def placed(pod: Pod, node: str, devices: tuple[str, ...], gpu_type: str) -> Pod:
    """Returns the pod on these devices. A container keeps its devices, so other devices recreate it."""
    elsewhere = bool(pod.node) and (pod.node, pod.devices) != (node, devices)
    return replace(pod, node=node, devices=devices, gpu_type=gpu_type, version=pod.version + elsewhere)


def changed(pod: Pod, body: PodBody, name: str, now: float) -> Pod | ActionRefused:
    """Returns the pod with this body and name. A change of the container's fields recreates it."""
    anew = replace(body, locked=pod.body.locked) != pod.body
    if anew and pod.body.locked and body.locked:
        return ActionRefused(
            f"pod {pod.id} is locked: only name and locked can change, the rest would reset it"
        )
    after = replace(pod, body=body, name=name)
    return _changed(after, "Updated by User", now, version=pod.version + 1) if anew else after


def _changed(pod: Pod, change: str, now: float, **fields: Any) -> Pod:
    return replace(pod, change=change, changed_at=now, **fields)


# ---- reports of nodes ---------------------------------------------------------------------------


def after_report(pod: Pod, state: PodState, now: float) -> Pod | None:
    """Returns the pod after its node's report; None if that is about an earlier version or start."""
    if (state.version, state.restarts) != (pod.version, pod.restarts):
        return None
    ports = state.ports if state.state == "running" else ()
    seen = ContainerReport(state.version, state.restarts, state.state, state.reason, state.exit_code, ports)
    after = replace(pod, seen=seen)
    before = pod.now_seen.state
    if state.state == "running" and before != "running":
        began = now if state.started_ms is None else state.started_ms / 1000
        return replace(after, started_at=began)
    if state.state in ENDED and before not in ENDED and pod.wish == "RUNNING":
        return _changed(after, "Exited by itself", now)
    return after


def after_hello(pod: Pod, found: HeldPod | None) -> Pod:
    """Returns the pod after its node's Hello, which names all pods that the node has. Reports follow."""
    if found is None:
        return replace(pod, seen=ContainerReport())
    if (found.version, found.restarts, found.state) == (pod.seen.version, pod.seen.restarts, pod.seen.state):
        return pod
    return replace(pod, seen=ContainerReport(found.version, found.restarts, found.state))


# ---- the state over HTTP ------------------------------------------------------------------------


def public_status(pod: Pod, *, connected: bool) -> PodStatus:
    """Returns the state of a pod as shown over HTTP. While its node is not `connected`, the node's last
    report is shown."""
    seen = pod.now_seen
    if pod.wish == "TERMINATED":
        return PodStatus(
            "TERMINATED", "TERMINATED", "" if pod.forgotten else "its container is being removed"
        )
    if pod.wish == "EXITED" and not pod.holds:
        return PodStatus("EXITED", "EXITED")
    desired = "EXITED" if pod.wish == "EXITED" or seen.state in ENDED else "RUNNING"
    if not connected:
        return PodStatus(desired, "ERROR", f"node {pod.node} is not connected: this is its last report")
    if pod.wish == "EXITED":
        return PodStatus(desired, "RUNNING", "it is being stopped")
    return PodStatus(desired, *_running(pod, seen))


def _running(pod: Pod, seen: ContainerReport) -> tuple[str, str]:
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
    return ("STARTING" if again else "PROVISIONING"), "its node has not reported it yet"
