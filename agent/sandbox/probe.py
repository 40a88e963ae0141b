"""Finds out what this host allows: the facts that `agent.isolation` decides by.

Nothing is inferred: bubblewrap and a mount are tried, with the very program that starts workers, as the user
whom workers will be. Done once, at the agent's start; each try costs some twenty milliseconds.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker.agent.cgroups import Cgroups
from stoker.agent.isolation import Host, Mount, Place, Plan, Sandbox, User, decide
from stoker.agent.launching import launch, order
from stoker.wire.messages import WorkerSpec

TRY_S = 10.0


def probe(
    *,
    user: User | None = None,
    user_range: tuple[int, int] | None = None,
    sandbox: Sandbox = "off",
    volume_root: Path | None = None,
    cgroups: Cgroups | str = "not looked for",
) -> Host:
    """`cgroups` is those that there are, or why there are none."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    host = Host(
        user=user,
        user_range=user_range,
        sandbox=sandbox,
        top=_top(),
        controllers=cgroups.controllers if isinstance(cgroups, Cgroups) else frozenset(),
        no_cgroups="" if isinstance(cgroups, Cgroups) else cgroups,
        volume_root="" if volume_root is None else str(volume_root),
        nofile=None if hard == resource.RLIM_INFINITY else hard,
    )
    if sandbox != "off":
        found = shutil.which("bwrap")
        why = "bubblewrap is not installed" if found is None else _try_bubblewrap(host, found)
        host = replace(host, bubblewrap=found or "", no_bubblewrap=why)
    if volume_root is not None:
        plan = Plan(mount=Mount(str(volume_root)))
        why = _try(plan)
        forked = _try(plan, _as(_worker_user(host))) if host.other_user and not why else why
        host = replace(host, no_mounts=why, no_mounts_in_a_fork=forked)
    return host


def _top() -> tuple[tuple[str, str], ...]:
    """Folders and links of the root."""
    with os.scandir("/") as entries:
        found = [entry for entry in entries if entry.is_symlink() or entry.is_dir()]
    return tuple(sorted((one.name, os.readlink(one.path) if one.is_symlink() else "") for one in found))


def _worker_user(host: Host) -> User | None:
    return host.user if host.user_range is None else (host.user_range[0], host.user_range[0])


def _try_bubblewrap(host: Host, program: str) -> str:
    """Why it does not work, for whoever workers are; empty when it does."""
    willing = replace(host, sandbox="on", bubblewrap=program, no_bubblewrap="", no_cgroups="not asked")
    plan = decide(willing, WorkerSpec("probe", "", 0, ""), Place("/", ()), user=_worker_user(host))
    return _try(plan)


def _try(plan: Plan, popen: dict[str, Any] | None = None) -> str:
    given = order(plan, ["true"], Path("/"), {"PATH": os.defpath})
    read, write = os.pipe()
    try:
        process = launch(given, {}, write, **(popen or {}))
    except OSError as error:
        os.close(read)
        return f"it cannot be tried: {error.strerror}"
    finally:
        os.close(write)
    with open(read, "rb") as output:
        try:
            code = process.wait(TRY_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"it was not done after {TRY_S:.0f} s"
        if code == 0:
            return ""
        said = output.read(2000).decode(errors="replace").strip().splitlines()
        return said[-1] if said else f"it exited with code {code}"


def _as(user: User | None) -> dict[str, Any]:
    return {} if user is None else {"user": user[0], "group": user[1], "extra_groups": ()}
