"""The files of a running control, read again at SIGHUP: certificates are applied, and what has changed in
`stoker.toml` is named, since it needs a restart. What is wrong in them neither ends nor changes control."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from stoker.cli.expected_errors import is_expected
from stoker.control.config.sections import Config
from stoker.control.config.tls import TlsFiles
from stoker.wire.tls_files import PemFile, warnings_now

log = logging.getLogger(__name__)


class Door(Protocol):
    """A server that shows a certificate."""

    def renew(self, tls: TlsFiles) -> None: ...


class Renewal:
    """The certificates in force. `read` returns the configuration and the TLS files that it or the options
    name, as they are now; `doors` are added once they listen."""

    def __init__(
        self,
        config: Config,
        certificate: PemFile | None,
        authority: PemFile | None,
        read: Callable[[], tuple[Config, TlsFiles | None]],
    ) -> None:
        self.certificate, self.authority = certificate, authority
        self.doors: list[Door] = []
        self._config, self._read = config, read

    def run(self) -> None:
        """Reads all again; logs what came of it, on one line."""
        try:
            config, tls = self._read()
            restart = changed_sections(self._config, config)
            if (tls is None) != (self.certificate is None):
                restart.append("tls")
            elif tls is not None:
                read = tls.certificates()
                for door in self.doors:
                    door.renew(tls)
                self.certificate, self.authority = read
        except Exception as error:
            if not is_expected(error):
                raise
            log.error("SIGHUP: nothing was changed: %s", error)
            return
        applied = "TLS files are applied to new connections" if self.certificate else "there are no TLS files"
        waits = f"needs a restart: {', '.join(restart)}" if restart else "nothing else has changed"
        log.info("SIGHUP: %s; %s", applied, waits)
        for warning in warnings_now(self.certificate, self.authority):
            log.warning("%s", warning)


def changed_sections(before: Config, now: Config) -> list[str]:
    """Returns the fields of the configuration that need a restart: all but `tls`."""
    names = (name for name in Config.model_fields if name != "tls")
    return [name for name in names if getattr(before, name) != getattr(now, name)]
