"""The files of a running control, read again at SIGHUP: the endpoints of `stoker.toml`, the fields that may
change while control runs, and certificates. Other fields that have changed are named, since they need a
restart. What is wrong in a file neither ends nor changes control.

    SIGHUP ─> all is read and checked, beside the loop ─> one transaction ─> memory ─> new connections
                           └─ wrong: a line says why          └─ not stored: a line says why
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from stoker.cli.control.declared import Declared
from stoker.cli.errors import CliError
from stoker.cli.expected_errors import is_expected
from stoker.cli.processes.readiness import MANAGER
from stoker.control.config.sections import Config
from stoker.control.config.tls import TlsFiles
from stoker.control.errors import UncertainCommit
from stoker.control.resources.declared.decision import Decision
from stoker.outbound.run_in_thread import run_in_thread
from stoker.wire.tls_files import TlsFilesUnusable

log = logging.getLogger(__name__)

APPLIED: Final = frozenset(
    {"aliases", "functions", "hosted", "local_roots", "prices", "registries", "retention"}
)
"""The fields of the configuration, beside `endpoints` and `tls`, that apply without a restart."""

Apply = Callable[[Declared], Awaitable[Decision]]


class Door(Protocol):
    """A server that shows a certificate."""

    def renew(self, tls: TlsFiles) -> None: ...


class Renewal:
    """The configuration and the certificates in force. `read` returns what the files declare now; `doors` are
    added once they listen."""

    def __init__(self, declares: Declared, read: Callable[[], Declared]) -> None:
        self.certificate, self.authority = declares.certificate, declares.authority
        self.doors: list[Door] = []
        self._started = self._in_force = declares.config
        self._read = read
        self._wanted = asyncio.Event()

    def ask(self) -> None:
        """Lets `run` read all again; of several requests meanwhile, one more time."""
        self._wanted.set()

    async def run(self, apply: Apply) -> None:
        """Reads all again for each request, until cancelled. `apply` stores endpoints and takes over
        settings."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            with MANAGER.reloading():
                await self.renew(apply)

    async def renew(self, apply: Apply) -> None:
        """Reads all again and applies it; logs what came of it, on one line."""
        try:
            found = await run_in_thread("files read again", self._checked)
            decision = await apply(found)
        except UncertainCommit as error:
            log.error("SIGHUP: it is not known whether the endpoints were changed, send it again: %s", error)
        except Exception as error:
            known = isinstance(error, CliError) or is_expected(error)
            log.error("SIGHUP: nothing was changed: %s", error, exc_info=None if known else error)
        else:
            changed = changed_fields(self._in_force, found.config)
            fields = sorted(APPLIED & changed)
            self._in_force = found.config
            tls, waits = self._shown(found), self._waiting(found)
            said = [
                f"endpoints {decision}" if str(decision) else "no endpoint has changed",
                *([f"{', '.join(fields)} applied"] if fields else []),
                tls,
                f"needs a restart: {', '.join(waits)}" if waits else "nothing needs a restart",
            ]
            log.info("SIGHUP: %s", "; ".join(said))

    def _checked(self) -> Declared:
        found = self._read()
        if found.tls is not None:
            found.tls.context()  # OpenSSL may refuse what can be read
        return found

    def _shown(self, found: Declared) -> str:
        """Shows the certificate to new connections, and returns what came of it."""
        if found.tls is None or self.certificate is None:
            return "there are no TLS files" if self.certificate is None else "TLS files stay as they are"
        try:
            for door in self.doors:
                door.renew(found.tls)
        except TlsFilesUnusable as error:
            return f"TLS files changed while they were read, send it again: {error}"
        self.certificate, self.authority = found.certificate, found.authority
        return "TLS files are applied to new connections"

    def _waiting(self, found: Declared) -> list[str]:
        """Returns the fields that differ from the start's and need a restart."""
        changed = changed_fields(self._started, found.config) - APPLIED - {"endpoints", "tls"}
        began_or_ended = (found.tls is None) != (self.certificate is None)
        return sorted(changed) + (["tls"] if began_or_ended else [])


def changed_fields(before: Config, now: Config) -> set[str]:
    """Returns the fields of the configuration that differ."""
    return {name for name in Config.model_fields if getattr(before, name) != getattr(now, name)}
