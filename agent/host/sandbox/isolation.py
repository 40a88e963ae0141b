"""Decides how a worker process is isolated on this host, and describes that for the node's record.

Pure: takes facts of the host (found by `agent.host.sandbox.probe`) and a WorkerSpec, and returns a
SandboxPlan, which the worker's first program applies to itself (`stoker.worker.launch`).

    measure            which workers have it                        otherwise
    own session        every worker                                 -
    no new privileges  every worker                                 -
    rlimits            every worker: no core file, open files,      -
                       processes where its user is its own
    own user           every worker of a root agent with a range    the agent's own, or a named one
    bubblewrap         fresh workers, where it works and another    the host's files, as its user sees them
                       user is there (`auto`), or always (`on`)
    own /proc          in bubblewrap, where it can be mounted       all processes and their command lines
    cgroup             every worker where version 2 is writable     /proc is searched; memory is watched
    volume             /runpod-volume, in a mount namespace         STOKER_VOLUME_PATH only

- Workers that are forked from a zygote have their zygote's user, and no bubblewrap, which cannot wrap a
  process that exists already.
- Memory is never limited by rlimits. RLIMIT_AS counts what CUDA and torch reserve and never use; RLIMIT_DATA
  counts weights that are mapped privately; neither counts what children use. A cgroup counts correctly;
  without one the agent measures resident anonymous memory, and kills a worker that exceeds its limit.
- Without another user, a sandbox would keep handlers of the operator from files that they can write to
  without it, so the operator must turn it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from stoker.agent.host.storage.volumes import MOUNT_POINT, group
from stoker.wire.messages import WorkerLimits, WorkerSpec

Sandbox = Literal["auto", "on", "off"]
User = tuple[int, int]

CPU_PERIOD_US = 100_000

AS_ROOT = (
    "HANDLERS RUN AS ROOT: whatever a handler does, it does with all rights on this host; --worker-users auto"
    " gives each worker a user of its own"
)

SHARED_UMASK = 0o002
"""The umask of workers that share a volume by its group."""


class Host(Struct, frozen=True):
    """Facts of the host.

    no_…    why a measure cannot be used; "" if it can
    top     the folders and links in the root folder, each with its target, "" for a folder
    nofile  the agent's own hard limit of open files
    files   the limits of open files for a worker without limits of its own
    """

    user: User | None = None
    user_range: tuple[int, int] | None = None
    sandbox: Sandbox = "off"
    bubblewrap: str = ""
    no_bubblewrap: str = "not looked for"
    no_own_proc: str = "not looked for"
    sizes_tmpfs: bool = False
    top: tuple[tuple[str, str], ...] = ()
    controllers: frozenset[str] = frozenset()
    no_cgroups: str = "not looked for"
    no_mounts: str = "not looked for"
    no_mounts_in_a_fork: str = "not looked for"
    volume_root: str = ""
    nofile: int | None = None
    root: bool = False
    files: tuple[int, int] | None = None

    @property
    def as_root(self) -> bool:
        return self.root and not self.other_user

    @property
    def other_user(self) -> bool:
        return self.user is not None or self.user_range is not None

    @property
    def wraps(self) -> bool:
        wanted = self.sandbox == "on" or (self.sandbox == "auto" and self.other_user)
        return wanted and not self.no_bubblewrap


class SandboxPaths(Struct, frozen=True):
    """The folder that the worker starts in, those that it may write to, and those in /tmp that it must see,
    although it has a /tmp of its own."""

    folder: str
    writable: tuple[str, ...]
    readable: tuple[str, ...] = ()


class Mount(Struct, frozen=True):
    """A folder that the worker sees at `target`."""

    source: str
    target: str = MOUNT_POINT


class SandboxPlan(Struct, frozen=True):
    """The isolation of a worker, as decided before it is started.

    wrapper  a command that runs the worker's command
    mount    the mount that the launcher makes, if there is no wrapper
    cgroup   the files of its cgroup with its limits; None: no cgroup
    watched  the bytes above which the agent kills it
    """

    user: User | None = None
    groups: tuple[int, ...] = ()
    rlimits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    wrapper: tuple[str, ...] = ()
    mount: Mount | None = None
    volume_path: str = ""
    cgroup: Mapping[str, str] | None = None
    watched: int | None = None


def decide(
    host: Host,
    spec: WorkerSpec,
    paths: SandboxPaths,
    *,
    user: User | None = None,
    volume: str = "",
    forked: bool = False,
) -> SandboxPlan:
    """Decides on the worker's isolation. `user` is who the worker runs as, where that is not the agent;
    `volume` its folder on this host."""
    wraps, limits = host.wraps and not forked, spec.limits or WorkerLimits()
    mounted = volume and not _no_mounts(host, wraps=wraps, forked=forked)
    mount = Mount(volume) if mounted else None
    return SandboxPlan(
        user=user,
        groups=groups(host, spec),
        rlimits=_rlimits(host, limits, forked=forked),
        wrapper=_wrapper(host, paths, mount, limits.memory_bytes) if wraps else (),
        mount=None if wraps else mount,
        volume_path=MOUNT_POINT if mounted else volume,
        cgroup=None if host.no_cgroups else _cgroup(limits, host.controllers),
        watched=None if "memory" in host.controllers else limits.memory_bytes,
    )


def _no_mounts(host: Host, *, wraps: bool, forked: bool) -> str:
    if wraps:
        return ""
    return host.no_mounts_in_a_fork if forked else host.no_mounts


def groups(host: Host, spec: WorkerSpec) -> tuple[int, ...]:
    """Returns the group by which workers of different users share a volume."""
    return (group(spec.volume),) if spec.volume and host.user_range is not None else ()


def unforkable(host: Host, spec: WorkerSpec) -> str:
    """Returns why a forked worker could not be isolated as the endpoint requires, or "" if it can."""
    pids = spec.limits is not None and spec.limits.pids is not None
    if pids and host.user_range is not None and "pids" not in host.controllers:
        return "its limit of processes needs a cgroup or a user of its own, and a fork has its zygote's"
    return ""


def _rlimits(host: Host, limits: WorkerLimits, *, forked: bool) -> dict[str, tuple[int, int]]:
    made = {"CORE": (0, 0)}
    if limits.files is not None:
        files = limits.files if host.nofile is None else min(limits.files, host.nofile)
        made["NOFILE"] = (files, files)
    elif host.files is not None:
        made["NOFILE"] = host.files
    own_user = host.user_range is not None and not forked
    if limits.pids is not None and own_user:  # it counts all that its user has
        made["NPROC"] = (limits.pids, limits.pids)
    return made


def _cgroup(limits: WorkerLimits, controllers: frozenset[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    if limits.memory_bytes is not None and "memory" in controllers:
        made |= {"memory.max": str(limits.memory_bytes), "memory.swap.max": "0", "memory.oom.group": "1"}
    if limits.pids is not None and "pids" in controllers:
        made["pids.max"] = str(limits.pids)
    if limits.cpus is not None and "cpu" in controllers:
        made["cpu.max"] = f"{round(limits.cpus * CPU_PERIOD_US)} {CPU_PERIOD_US}"
    return made


def _wrapper(
    host: Host, paths: SandboxPaths, mount: Mount | None, memory_bytes: int | None
) -> tuple[str, ...]:
    """Returns the command of bubblewrap.

    The worker gets a root of its own with the host's folders, so that mount points can be created in it. It
    gets a pid namespace and its /proc, so that it sees no command line of another; the agent is outside and
    sees all. It gets a /dev/shm of its own, so that what is in it is counted and removed with it; its size is
    the memory limit, or half of the host's memory."""
    made: list[str] = [host.bubblewrap, "--die-with-parent", "--unshare-user-try", "--unshare-ipc"]
    made += ["--cap-drop", "ALL"]
    for name, target in host.top:
        if target:
            made += ["--symlink", target, f"/{name}"]
        elif name not in ("dev", "tmp", "proc") and f"/{name}" != MOUNT_POINT:
            made += ["--ro-bind", f"/{name}", f"/{name}"]
    made += ["--bind", "/proc", "/proc"] if host.no_own_proc else ["--unshare-pid", "--proc", "/proc"]
    made += ["--dev-bind", "/dev", "/dev", "--tmpfs", "/tmp"]  # its own
    if memory_bytes is not None and host.sizes_tmpfs:
        made += ["--size", str(memory_bytes)]
    made += ["--tmpfs", "/dev/shm"]
    for path in sorted({one for one in paths.readable if one.startswith("/tmp/")}):  # hidden by its own /tmp
        made += ["--ro-bind", path, path]
    for path in paths.writable:
        made += ["--bind", path, path]
    if mount is not None:
        made += ["--bind", mount.source, mount.target]
    return (*made, "--remount-ro", "/", "--chdir", paths.folder, "--")


# -- the node's record


def facts(host: Host) -> dict[str, str]:
    """Returns which measures are used, each as "yes" or "no" and why, for Hello.facts."""
    return {
        "isolation.user": _user_fact(host),
        "isolation.no_new_privs": "yes",
        "isolation.rlimits": "yes: no core files; open files as the endpoint says"
        + ("; processes, too" if host.user_range is not None else ""),
        "isolation.bubblewrap": _bubblewrap_fact(host),
        "isolation.cgroups": _cgroup_fact(host),
        "isolation.memory": "yes: by cgroup" if "memory" in host.controllers else "yes: watched by the agent",
        "volumes": _volume_fact(host),
    }


def _user_fact(host: Host) -> str:
    if host.user_range is not None:
        first, last = host.user_range
        return f"yes: one of its own for each worker ({first}-{last}); forked ones share their endpoint's"
    if host.user is not None:
        return f"yes: user {host.user[0]}, the same for all workers"
    if host.root:
        return f"no: {AS_ROOT}"
    return "no: workers run as the agent's own user (--worker-users gives each its own, to an agent of root)"


def _bubblewrap_fact(host: Host) -> str:
    if host.wraps:
        seen = f"; it sees the host's processes: {host.no_own_proc}" if host.no_own_proc else ""
        return f"yes: but for workers that are forked{seen}"
    if host.sandbox == "off":
        return "no: STOKER_SANDBOX=off"
    if host.no_bubblewrap:
        return f"no: {host.no_bubblewrap}"
    return "no: workers run as the agent's own user (STOKER_SANDBOX=on wraps those, too)"


def _cgroup_fact(host: Host) -> str:
    if host.no_cgroups:
        return f"no: {host.no_cgroups}"
    limits = ", ".join(sorted(host.controllers & {"memory", "pids", "cpu"}))
    return f"yes: for the kill, and limits of {limits}" if limits else "yes: for the kill, not for limits"


def _volume_fact(host: Host) -> str:
    if not host.volume_root:
        return "no: no volume root"
    if host.wraps or not host.no_mounts:
        forked = f"; of forked workers by variable: {host.no_mounts_in_a_fork}"
        return f"yes: at {MOUNT_POINT}" + (forked if host.no_mounts_in_a_fork else "")
    return f"yes: by STOKER_VOLUME_PATH only: {host.no_mounts}"
