"""The checks of `/ready`: each is awaited with a deadline, and what it raises is its failure."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from stoker.control.http.health.readiness import Outcome, changed
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.store.database.commits import Committer
from stoker.control.store.database.opening import schema_problem
from stoker.wire.tls_files import SOON, PemFile, valid_until

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

TOUCH = "UPDATE meta SET value = value WHERE name = 'schema_version'"
"""A write that changes nothing."""

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


def checks_of(
    commits: Committer,
    artifacts: Artifacts,
    folder: Path,
    certificate: Callable[[], PemFile | None],
    clock: Callable[[], datetime],
) -> dict[str, Check]:
    """Returns control's checks, by their names. `certificate` returns the one that control serves, with
    TLS."""

    async def database() -> str:
        await commits.read(lambda conn: conn.run("SELECT 1", {}).fetchone())
        return ""

    async def writes() -> str:
        """Returns why others failed where this write does not: a full disk takes some that are small."""
        await commits.commit(lambda conn: conn.write(TOUCH, {}))
        return commits.outage

    async def migrations() -> str:
        return await commits.read(schema_problem)

    async def object_store() -> str:
        await artifacts.put_bytes(PROBE, b"ready", "text/plain")
        return ""

    async def disk() -> str:
        free = shutil.disk_usage(folder).free
        return "" if free >= FREE_LEAST else f"{free >> 20} MiB are free, {FREE_LEAST >> 20} are needed"

    found: dict[str, Check] = {
        "database": database,
        "writes": writes,
        "migrations": migrations,
        "objectStore": object_store,
        "disk": disk,
    }
    if certificate() is not None:

        async def of_certificate() -> str:
            served = certificate()
            return "" if served is None else certificate_problem(served, clock())

        found["certificate"] = of_certificate
    return found


def warnings_of(
    certificate: PemFile | None,
    authority: PemFile | None,
    clock: Callable[[], datetime],
    *,
    embedded_beyond: bool,
) -> tuple[str, ...]:
    """Returns what an operator should mend before it fails. `embedded_beyond`: agents on other hosts may
    join, and the object store listens on this host alone."""
    now = clock()
    ending = [file for file in (certificate, authority) if file and valid_until(file) <= now + SOON]
    return (
        *([EMBEDDED_BEYOND] if embedded_beyond else ()),
        *(
            f"the {file.what} ends on {_ends(file)}: renew it, and send SIGHUP to control"
            for file in ending
            if file is authority or now < valid_until(file)  # otherwise it is a failure, and no warning
        ),
    )


def certificate_problem(certificate: PemFile, now: datetime) -> str:
    """Returns why new connections fail, or an empty text. Control serves the certificate that it read at its
    start, or at the last SIGHUP."""
    return "" if now < valid_until(certificate) else f"it ended on {_ends(certificate)}"


def _ends(file: PemFile) -> str:
    return f"{valid_until(file):%Y-%m-%d at %H:%M} UTC"
