"""Keeps other workers and other hosts from the ports of http workers, by the kernel's packet filter (nft).

    ports taken ──protect──> nobody but the agent ──admit──> the worker's own user, too ──release──> open

A program that serves HTTP can ask nobody for a proof, and every process of a host can connect to loopback. So
the kernel decides by user (`agent.workers.http_servers.filter_rules`). This needs an agent of root that may
change the filter, and workers that have users of their own. The agent replaces its own table when it starts,
and removes the table when it ends. If somebody else removed the table (a reload of the host's firewall may),
the next worker to start brings it back.

Each change takes some milliseconds on the loop's thread, as the start of a process does, and for the same
reason: a worker's port must be protected before the worker listens.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.http_servers import filter_rules as rules

log = logging.getLogger(__name__)

NFT_S = 5.0


class NoFilter(Exception):
    """The filter cannot be used; the message says why."""


class PortFilter:
    """The filter of connections to the ports of http workers. `between` are the first and the last of the
    workers' users, `folder` is the agent's data folder."""

    def __init__(self, users: WorkerUsers, between: tuple[int, int], folder: Path) -> None:
        """Makes the table. Raises NoFilter."""
        self._users, self._between = users, between
        self._name = f"stoker_{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"
        self._ports: dict[str, Sequence[int]] = {}
        self._admitted: dict[str, int] = {}
        self._replace()

    def protect(self, worker: str, ports: Sequence[int]) -> None:
        """Raises SpawnFailed."""
        self._ports[worker] = ports
        try:
            self._change(rules.protected(self._name, ports))
        except NoFilter as why:
            del self._ports[worker]
            raise SpawnFailed(f"other workers cannot be kept from this worker's port: {why}") from None

    def admit(self, worker: str) -> None:
        """Lets the worker connect to its own ports, as some servers do at their start."""
        user = self._users.of(worker)
        if user is None:  # in a container, whose users are not among those that are kept away
            return
        self._admitted[worker] = user[0]
        try:
            self._change(rules.admitted(self._name, self._ports[worker], user[0]))
        except NoFilter as why:
            log.warning("worker %s cannot connect to its own port: %s", worker, why)

    def release(self, worker: str) -> None:
        if self._ports.pop(worker, None) is None:
            return
        self._admitted.pop(worker, None)
        try:
            self._replace()
        except NoFilter as why:  # the ports stay protected until the next change
            log.warning("the ports of worker %s stay protected: %s", worker, why)

    def close(self) -> None:
        try:
            _nft(rules.removed(self._name))
        except NoFilter as why:
            log.warning("the table %s of the packet filter is left: %s", self._name, why)

    def _change(self, commands: str) -> None:
        try:
            _nft(commands)
        except NoFilter:  # the table is gone
            self._replace()

    def _replace(self) -> None:
        uids = self._admitted
        ports = {port: uids.get(worker) for worker, found in self._ports.items() for port in found}
        _nft(rules.replaced(self._name, self._between, ports))


def _nft(commands: str) -> None:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    if (program := shutil.which("nft", path=path)) is None:
        raise NoFilter("nft is not installed (package nftables)")
    try:
        done = subprocess.run(
            [program, "-f", "-"], input=commands.encode(), capture_output=True, check=False, timeout=NFT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoFilter(f"{program} cannot be run: {error}") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        raise NoFilter(f"nft: {lines[0] if lines else f'status {done.returncode}'}")
