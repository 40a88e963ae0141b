"""The certificate that both doors of control show, HTTP for callers and gRPC for agents, and the rule for
doors without one: in the clear only this machine may come in, because callers send keys and agents get jobs.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


class NotLoopback(Exception):
    """Without TLS only this machine may connect; the message says what to do."""


class TlsFilesUnusable(Exception):
    """The message says which files, and why."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. With `client_ca`, an agent must show a certificate that it signed; callers have keys."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def read(self, file: Path) -> bytes:
        try:
            return file.read_bytes()
        except OSError as error:
            raise TlsFilesUnusable(f"the TLS file {file} cannot be read: {error.strerror}") from None

    def context(self) -> ssl.SSLContext:
        """Returns a TLS context for the server that callers reach. Raises TlsFilesUnusable."""
        self.read(self.cert), self.read(self.key)  # ssl does not say which of the two is missing
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.cert, self.key, password=self._no_password)
        except ssl.SSLError as error:
            why = f"{self.cert} and {self.key} are no certificate and its key: {error.reason or error}"
            raise TlsFilesUnusable(why) from None
        return context

    def _no_password(self) -> str:
        raise TlsFilesUnusable(f"the key in {self.key} is encrypted; give one that needs no password")
