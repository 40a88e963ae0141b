"""What an agent is told of how its workers are shut in, and what it makes of that on this host.

--worker-user NAME              all workers run as this user (root's to say)
--worker-users 100000-100999    each living worker has one of these to itself (root's to say); the range is
                                this agent's alone: whatever runs as one of them is ended
--volume-root DIR               where the folders of network volumes lie; or STOKER_VOLUME_ROOT
STOKER_SANDBOX                  auto: bubblewrap where it works and workers are another user; on: always; off
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import stoker
from stoker.agent.cgroups import Cgroups, NoCgroups
from stoker.agent.isolation import Host, Sandbox, facts
from stoker.agent.isolation_probe import probe
from stoker.agent.worker_users import WorkerUsers
from stoker.cli.errors import CliError

log = logging.getLogger(__name__)

SANDBOX, VOLUME_ROOT = "STOKER_SANDBOX", "STOKER_VOLUME_ROOT"
FIRST_MIN, USERS_MAX = 1000, 1 << 20


@dataclass(frozen=True, slots=True)
class Isolation:
    """Of this host's workers."""

    host: Host
    users: WorkerUsers
    cgroups: Cgroups | None

    @property
    def facts(self) -> dict[str, str]:
        return facts(self.host)


def isolation(
    folder: Path,
    given: Mapping[str, str],
    *,
    user: tuple[int, int] | None = None,
    user_range: tuple[int, int] | None = None,
    volume_root: Path | None = None,
) -> Isolation:
    """Made once at the agent's start, when its folder is its own: cgroups of an earlier agent are removed."""
    cgroups: Cgroups | str
    try:
        cgroups = Cgroups(folder)
    except (NoCgroups, OSError) as error:
        cgroups = str(error)
    host = probe(
        user=user, user_range=user_range, sandbox=sandbox(given), volume_root=volume_root, cgroups=cgroups
    )
    if host.sandbox == "on" and host.no_bubblewrap:
        raise CliError(f"{SANDBOX}=on, but bubblewrap does not work here: {host.no_bubblewrap}")
    for name, words in facts(host).items():
        log.info("%s: %s", name, words)
    return Isolation(host, WorkerUsers(user, user_range), cgroups if isinstance(cgroups, Cgroups) else None)


def sandbox(given: Mapping[str, str]) -> Sandbox:
    match given.get(SANDBOX, "auto"):
        case "auto":
            return "auto"
        case "on":
            return "on"
        case "off":
            return "off"
        case other:
            raise CliError(f"{SANDBOX} must be auto, on or off; got {other!r}")


def volume_root(option: Path | None, given: Mapping[str, str]) -> Path | None:
    named = option if option is not None else Path(given[VOLUME_ROOT]) if VOLUME_ROOT in given else None
    if named is not None and not named.is_dir():
        raise CliError(f"the volume root {named} is no folder")
    return None if named is None else named.resolve()


def worker_user(name: str | None, folder: Path) -> tuple[int, int] | None:
    """Uid and gid that workers run as; None: our own. The user must be able to pass into `folder`."""
    if name is None:
        return None
    _require_root(name)
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise CliError(f"there is no user {name} on this host") from None
    _open_to(name, (entry.pw_uid, entry.pw_gid), folder)
    return entry.pw_uid, entry.pw_gid


def worker_users(text: str | None, folder: Path) -> tuple[int, int] | None:
    """The first and the last uid of the range that is given as `100000-100999`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,10})-(\d{1,10})", text)
    first, last = (int(found[1]), int(found[2])) if found else (0, -1)
    if not (FIRST_MIN <= first <= last < 1 << 32 and last - first < USERS_MAX):
        raise CliError(f"--worker-users is a range of user ids like 100000-100999; got {text!r}")
    taken = [entry.pw_name for entry in pwd.getpwall() if first <= entry.pw_uid <= last]
    if taken:
        raise CliError(f"--worker-users {text} holds {taken[0]}'s id: give a range that is nobody's")
    _require_root(text)
    _open_to(f"user {first}", (first, first), folder)
    return first, last


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
    """Better now, in a sentence, than in every job: an interpreter below /root is nobody else's."""
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
