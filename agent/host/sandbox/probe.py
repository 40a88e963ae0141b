"""Finds the facts of this host by which `agent.host.sandbox.isolation` decides.

Bubblewrap and mounts are tried out, with the program that starts workers, as the user of the workers. This is
done once, at the agent's start; each try takes about 20 ms.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stoker.agent.host.process_tree.cgroups import Cgroups
from stoker.agent.host.sandbox.isolation import Host, Mount, Sandbox, SandboxPaths, SandboxPlan, User, decide
from stoker.agent.host.sandbox.launching import launch, order
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
    """Returns what this host allows of a sandbox. `cgroups` are the workers' cgroups, or why there are
    none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    host = Host(
        user=user,
        user_range=user_range,
        sandbox=sandbox,
        top=_top(),
        controllers=cgroups.controllers if isinstance(cgroups, Cgroups) else frozenset(),
        no_cgroups="" if isinstance(cgroups, Cgroups) else cgroups,
        volume_root="" if volume_root is None else str(volume_root),
        nofile=None if hard == resource.RLIM_INFINITY else hard,
        files=(soft, hard),
    )
    if sandbox != "off":
        host = _with_bubblewrap(host)
    if volume_root is not None:
        plan = SandboxPlan(mount=Mount(str(volume_root)))
        why = _try(plan)
        forked = _try(plan, _as(_worker_user(host))) if host.other_user and not why else why
        host = replace(host, no_mounts=why, no_mounts_in_a_fork=forked)
    return host


def _top() -> tuple[tuple[str, str], ...]:
    """Lists the folders and links in the root folder."""
    with os.scandir("/") as entries:
        found = [entry for entry in entries if entry.is_symlink() or entry.is_dir()]
    return tuple(sorted((one.name, os.readlink(one.path) if one.is_symlink() else "") for one in found))


def _worker_user(host: Host) -> User | None:
    return host.user if host.user_range is None else (host.user_range[0], host.user_range[0])


def _with_bubblewrap(host: Host) -> Host:
    """Adds what bubblewrap can do here. Engines hide parts of their containers' /proc, and the kernel then
    allows no other one: without a /proc of its own, a sandbox is still a sandbox."""
    found = shutil.which("bwrap")
    if found is None:
        return replace(host, no_bubblewrap="bubblewrap is not installed")
    no_proc = _try_bubblewrap(replace(host, no_own_proc=""), found)
    why = _try_bubblewrap(replace(host, no_own_proc=no_proc), found) if no_proc else ""
    sizes = not why and _sizes_tmpfs(found)
    return replace(host, bubblewrap=found, no_bubblewrap=why, sizes_tmpfs=sizes, no_own_proc=no_proc)


def _try_bubblewrap(host: Host, program: str) -> str:
    """Returns why bubblewrap does not work for the workers' user, or "" if it does."""
    willing = replace(host, sandbox="on", bubblewrap=program, no_bubblewrap="", no_cgroups="not asked")
    plan = decide(willing, WorkerSpec("probe", "", 0, ""), SandboxPaths("/", ()), user=_worker_user(host))
    return _try(plan)


def _sizes_tmpfs(program: str) -> bool:
    """Returns whether bubblewrap can limit the size of a tmpfs, which it can from version 0.8."""
    done = subprocess.run([program, "--help"], capture_output=True, check=False, timeout=TRY_S)
    return b"--size " in done.stdout + done.stderr


def _try(plan: SandboxPlan, popen: dict[str, Any] | None = None) -> str:
    read, write = os.pipe()
    try:
        process = launch(order(plan, ["true"], Path("/"), {"PATH": os.defpath}), {}, write, **(popen or {}))
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
        lines = output.read(2000).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it exited with code {code}"


def _as(user: User | None) -> dict[str, Any]:
    return {} if user is None else {"user": user[0], "group": user[1], "extra_groups": ()}
