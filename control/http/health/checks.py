"""The checks of `/ready`: each is awaited with a deadline, and what it raises is its failure."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from stoker.control.config.tls import TlsFiles
from stoker.control.http.health.readiness import Outcome, changed
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.store.database.commits import Commits
from stoker.control.store.database.opening import schema_problem
from stoker.wire.tls_files import SOON, TlsFilesUnusable

log = logging.getLogger(__name__)

Check: TypeAlias = Callable[[], Awaitable[str]]
"""Returns what is wrong, or an empty text. What it raises is wrong, too."""

WITHIN_S = 5.0
FRESH_S = 2.0
"""How long a look counts. Callers without a key cause at most one look in this time."""

FREE_LEAST = 256 << 20
"""Bytes that the disk of the data folder must have free."""

EMBEDDED_BEYOND = (
    "control listens beyond loopback, and its embedded object store does not: agents on other hosts cannot"
    " store results. Configure [s3]"
)

PROBE = ".stoker-check/ready"
"""The object that the check of the object store writes again and again."""


class Readiness:
    """The last look at all checks. `warnings` are told beside them, and fail nothing."""

    def __init__(
        self,
        checks: Mapping[str, Check],
        warnings: Callable[[], Sequence[str]],
        clock: Callable[[], float],
    ) -> None:
        self._checks, self._warnings, self._clock = checks, warnings, clock
        self._looking = asyncio.Lock()
        self._at = float("-inf")
        self._outcomes: tuple[Outcome, ...] = ()
        self._warned: tuple[str, ...] = ()

    async def look(self) -> tuple[tuple[Outcome, ...], tuple[str, ...]]:
        """Returns the outcomes and the warnings, from the last look if that is fresh."""
        async with self._looking:
            if self._clock() - self._at >= FRESH_S:
                found = await asyncio.gather(*(_outcome(name, one) for name, one in self._checks.items()))
                for line in changed(self._outcomes, found):
                    log.warning("%s", line)
                self._outcomes, self._warned, self._at = tuple(found), tuple(self._warnings()), self._clock()
            return self._outcomes, self._warned


async def _outcome(name: str, check: Check) -> Outcome:
    try:
        async with asyncio.timeout(WITHIN_S):
            return Outcome(name, await check())
    except TimeoutError:
        return Outcome(name, f"no answer within {WITHIN_S:.0f} s")
    except Exception as error:
        return Outcome(name, str(error) or type(error).__name__)


def checks_of(commits: Commits, artifacts: Artifacts, folder: Path, tls: TlsFiles | None) -> dict[str, Check]:
    """Returns control's checks, by their names."""

    async def database() -> str:
        await commits.read(lambda conn: conn.run("SELECT 1", {}).fetchone())
        return ""

    async def migrations() -> str:
        return await commits.read(schema_problem)

    async def object_store() -> str:
        await artifacts.put_bytes(PROBE, b"ready", "text/plain")
        return ""

    async def disk() -> str:
        free = shutil.disk_usage(folder).free
        return "" if free >= FREE_LEAST else f"{free >> 20} MiB are free, {FREE_LEAST >> 20} are needed"

    async def certificate() -> str:
        return "" if tls is None else await asyncio.to_thread(certificate_problem, tls, datetime.now(UTC))

    found: dict[str, Check] = {
        "database": database,
        "migrations": migrations,
        "objectStore": object_store,
        "disk": disk,
    }
    return found if tls is None else {**found, "certificate": certificate}


def warnings_of(tls: TlsFiles | None, now: datetime, *, embedded_beyond: bool) -> tuple[str, ...]:
    """Returns what an operator should mend before it fails. `embedded_beyond`: agents on other hosts may
    join, and the object store listens on this host alone."""
    found = [EMBEDDED_BEYOND] if embedded_beyond else []
    try:
        certificate, authority = (tls.pair()[0], tls.authority()) if tls else (None, None)
    except TlsFilesUnusable:
        return tuple(found)  # a failure, which the check tells
    if certificate is not None:
        end = min(one.not_valid_after_utc for one in certificate.certificates)
        if now < end <= now + SOON:
            found.append(f"the TLS certificate expires on {end:%Y-%m-%d at %H:%M} UTC; renew it")
    if authority is not None:
        end = max(one.not_valid_after_utc for one in authority.certificates)
        if end <= now + SOON:
            found.append(
                f"the authority of agents' certificates ends on {end:%Y-%m-%d at %H:%M} UTC; renew it"
            )
    return tuple(found)


def certificate_problem(tls: TlsFiles, now: datetime) -> str:
    """Returns why new connections would fail, or an empty text. The files are read again: they may have been
    replaced since the start."""
    try:
        certificate, _ = tls.pair()
    except (TlsFilesUnusable, ssl.SSLError) as error:
        return str(error)
    end = min(one.not_valid_after_utc for one in certificate.certificates)
    return f"expired on {end:%Y-%m-%d at %H:%M} UTC" if end <= now else ""
