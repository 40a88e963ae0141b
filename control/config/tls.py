"""The certificate that both doors of control show, HTTP for callers and gRPC for agents, and the rule for
doors without one: in the clear only this machine may come in, because callers send keys and agents get jobs.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from msgspec import Struct

from stoker.wire.tls_files import (
    PemFile,
    TlsFilesUnusable,
    read_authority,
    read_certificate,
    read_key,
)


class NotLoopback(Exception):
    """Without TLS only this machine may connect; the message says what to do."""


class TlsFiles(Struct, frozen=True):
    """PEM files. With `client_ca`, an agent must show a certificate that it signed; callers have keys."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def pair(self) -> tuple[PemFile, PemFile]:
        """Returns the certificate and its key. Raises TlsFilesUnusable."""
        certificate = read_certificate(self.cert)
        return certificate, read_key(self.key, certificate)

    def authority(self) -> PemFile | None:
        """Returns the authority that signs agents' certificates. Raises TlsFilesUnusable."""
        return None if self.client_ca is None else read_authority(self.client_ca)

    def certificates(self) -> tuple[PemFile, PemFile | None]:
        """Returns the certificate and the authority of agents, once all files fit. Raises
        TlsFilesUnusable."""
        return self.pair()[0], self.authority()

    def context(self) -> ssl.SSLContext:
        """Returns a TLS context for the server that callers reach. Raises TlsFilesUnusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Gives the context the pair as the files have it now; connections that are open keep theirs. Raises
        TlsFilesUnusable."""
        self.pair()  # ssl does not say which of the two is wrong
        try:
            context.load_cert_chain(self.cert, self.key, password=self._no_password)
        except ssl.SSLError as error:
            why = f"{self.cert} and {self.key} are refused by OpenSSL: {error.reason or error}"
            raise TlsFilesUnusable(why) from None

    def _no_password(self) -> str:
        raise TlsFilesUnusable(f"the TLS key {self.key} is encrypted; give a key that needs no password")
