"""Settings of the isolation of workers, and their effect on this host.

--worker-user NAME              all workers run as this user (only as root)
--worker-users 100000-100999    each running worker has a user of its own from this range (only as root);
                                `auto` finds a range (`cli.agent.worker_users`)
--volume-root DIR               the folder of network volumes; or STOKER_VOLUME_ROOT
STOKER_SANDBOX                  auto: bubblewrap if it works and workers are another user; on: always; off
"""

from __future__ import annotations

import logging
import os
import pwd
import resource
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

import stoker
from stoker.agent.host.process_tree.cgroups import Cgroups, NoCgroups
from stoker.agent.host.sandbox.isolation import AS_ROOT, Host, Sandbox, facts
from stoker.agent.host.sandbox.probe import probe
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.http_servers.port_filter import NoFilter, PortFilter
from stoker.cli.agent.worker_users import AUTO, RangeLock, UidRange, find, hold, parse
from stoker.cli.errors import CliError

log = logging.getLogger(__name__)

SANDBOX, VOLUME_ROOT = "STOKER_SANDBOX", "STOKER_VOLUME_ROOT"
FILES_WANTED = 65_536


@dataclass(frozen=True, slots=True)
class Isolation:
    """The isolation of this host's workers."""

    host: Host
    users: WorkerUsers
    cgroups: Cgroups | None
    http_ports: PortFilter | None = None
    no_http_ports: str = ""

    @property
    def facts(self) -> dict[str, str]:
        ports = "yes: by the packet filter" if self.http_ports is not None else f"no: {self.no_http_ports}"
        return {**facts(self.host), "isolation.http_ports": ports}

    def close(self) -> None:
        if self.http_ports is not None:
            self.http_ports.close()


def isolation(
    folder: Path,
    variables: Mapping[str, str],
    *,
    user: tuple[int, int] | None = None,
    user_range: tuple[int, int] | None = None,
    volume_root: Path | None = None,
) -> Isolation:
    """Returns the isolation of workers. Called once, after the agent has locked its folder: removes cgroups
    of an earlier agent."""
    cgroups: Cgroups | str
    try:
        cgroups = Cgroups(folder)
    except (NoCgroups, OSError) as error:
        cgroups = str(error)
    host = probe(
        user=user, user_range=user_range, sandbox=sandbox(variables), volume_root=volume_root, cgroups=cgroups
    )
    host = replace(host, root=os.geteuid() == 0)
    if host.sandbox == "on" and host.no_bubblewrap:
        raise CliError(f"{SANDBOX}=on, but bubblewrap does not work here: {host.no_bubblewrap}")
    raise_open_files()
    users = WorkerUsers(user, user_range)
    found = Isolation(
        host, users, cgroups if isinstance(cgroups, Cgroups) else None, *_filter(users, user_range, folder)
    )
    for name, text in found.facts.items():
        log.info("%s: %s", name, text)
    if host.as_root:
        log.warning("%s", AS_ROOT)
    return found


def _filter(
    users: WorkerUsers, user_range: tuple[int, int] | None, folder: Path
) -> tuple[PortFilter | None, str]:
    """Returns what keeps workers from the ports of others, or why there is nothing."""
    if user_range is None:
        return None, "workers have no users of their own (--worker-users)"
    try:
        return PortFilter(users, user_range, folder), ""
    except NoFilter as why:
        return None, str(why)


def raise_open_files() -> None:
    """Raises the agent's own limit of open files: it keeps each result file open until it is uploaded.
    Workers get the limit that the agent had before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def sandbox(variables: Mapping[str, str]) -> Sandbox:
    match variables.get(SANDBOX, "auto"):
        case "auto":
            return "auto"
        case "on":
            return "on"
        case "off":
            return "off"
        case other:
            raise CliError(f"{SANDBOX} must be auto, on or off; got {other!r}")


def volume_root(option: Path | None, variables: Mapping[str, str]) -> Path | None:
    named = (
        option if option is not None else Path(variables[VOLUME_ROOT]) if VOLUME_ROOT in variables else None
    )
    if named is not None and not named.is_dir():
        raise CliError(f"the volume root {named} is not a folder")
    return None if named is None else named.resolve()


def worker_user(name: str | None, folder: Path) -> tuple[int, int] | None:
    """Returns the uid and gid of workers, None for the agent's own. The user must be able to enter
    `folder`."""
    if name is None:
        return None
    _require_root(name)
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise CliError(f"there is no user {name} on this host") from None
    _open_to(name, (entry.pw_uid, entry.pw_gid), folder)
    return entry.pw_uid, entry.pw_gid


def worker_users(text: str | None, folder: Path) -> UidRange | None:
    """Returns the range in `text`, such as `100000-100999`, or the range found for `auto`; None for `auto` if
    the agent is not root."""
    if text is None or (text == AUTO and os.geteuid() != 0):
        return None
    if text == AUTO:
        found = find(folder, RangeLock())
    else:
        found = parse(text)
        _require_root(text)
        hold(found, RangeLock())
    _open_to(f"user {found[0]}", (found[0], found[0]), folder)
    return found


def _require_root(name: str) -> None:
    if os.geteuid() != 0:
        raise CliError(f"only root can run workers as another user ({name})")


def _open_to(name: str, user: tuple[int, int], folder: Path) -> None:
    folder.chmod(0o711)
    for above in folder.parents:
        if not above.stat().st_mode & stat.S_IXOTH:
            raise CliError(
                f"workers run as {name}, who may not pass through {above}: chmod o+x it, or"
                " give another --data-dir"
            )
    _try_to_run_as(name, user)


def _try_to_run_as(name: str, user: tuple[int, int]) -> None:
    """Raises CliError if the user cannot run the interpreter, for example because it is below /root."""
    source = str(Path(stoker.__file__).parents[1])
    try:
        subprocess.run(
            [sys.executable, "-P", "-c", "import stoker.worker"],
            env={"PYTHONPATH": source},
            cwd="/",
            user=user[0],
            group=user[1],
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise CliError(
            f"workers run as {name}, who cannot run {sys.executable} with {source}: {error}"
        ) from None
