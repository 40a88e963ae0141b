"""The connections of the agent to control: its addresses, the TLS files, and by what this node is known
there.

    with a credential and a certificate ── good ────────────────────────> a session
                                        └─ the certificate is refused ──> it joins again, with a join token;
                                                                          AgentRefused without one
    without a credential ── it joins with the join token

A node that joins again proves with its credential that the id is its own.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from stoker.agent.interfaces import Certificates, NoCertificates
from stoker.agent.link.addresses import after_session, parse_addresses
from stoker.agent.link.grpc_stream import CertificateRefused, connect, stays_here
from stoker.cli.data_folder import read_private, write_private
from stoker.cli.errors import CliError
from stoker.cli.processes.readiness import MANAGER
from stoker.wire.streams import AgentStream, StreamEnded
from stoker.wire.tls_files import (
    PemFile,
    TlsFilesUnusable,
    read_authority,
    read_certificate,
    read_key,
    warnings_now,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options of `stoker agent` that say where control is and what both sides show."""

    control: str
    data_dir: Path
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    ca_fingerprint: str | None = None
    insecure: bool = False


class NodeCredential:
    """The secret by which this host authenticates: the credential that it got when it joined, else the join
    token."""

    def __init__(self, folder: Path, join_token: str | None) -> None:
        self._path, self.join_token = folder / "node_credential", join_token

    def kept(self) -> str | None:
        """Returns the credential; None for a node that has not joined."""
        try:
            return read_private(self._path)
        except FileNotFoundError:
            return None

    def token(self) -> str:
        found = self.kept() or self.join_token
        if found is None:
            raise CliError(
                "an agent joins with a token: --join-token, or STOKER_JOIN_TOKEN in the environment; one"
                f" that has joined before needs none, but there is no {self._path}"
            )
        return found

    def keep(self, credential: str) -> bool:
        """Stores the credential with mode 0600. Returns False if the disk does not accept it: control issues
        another one at the next join."""
        try:
            write_private(self._path, credential + "\n")
        except OSError as error:
            log.warning("the node's credential cannot be stored in %s: %s", self._path, error.strerror)
            return False
        return True


class Controls:
    """The connections to control, at whichever of its addresses leads. The TLS files are read for each, so
    that a renewed certificate is used. Raises CliError, and TlsFilesUnusable where they are wrong already."""

    def __init__(self, options: ConnectionOptions, credential: NodeCredential) -> None:
        if (options.tls_cert is None) != (options.tls_key is None):
            raise CliError("a certificate of the agent's own needs both --tls-cert and --tls-key")
        try:
            self._addresses = parse_addresses(options.control)
        except ValueError as error:
            raise CliError(f"--control {options.control!r}: {error}") from None
        self.stay_here = all(stays_here(address) for address in self._addresses.all)
        self._fingerprint = _fingerprint(options)
        _check_secured(options, self._addresses.all)
        self._options, self._credential = options, credential
        self._proof = ""
        authority, certificate, _ = _tls_files(options)
        for warning in warnings_now(authority, certificate):
            log.warning("%s", warning)
        secured = options.tls_ca is not None or self._fingerprint is not None
        self._own = None
        if secured and options.tls_cert is None:
            from stoker.cli.agent.node_certificate import NodeCertificate

            self._own = NodeCertificate(options.data_dir, pinned=self._fingerprint is not None)

    @property
    def certificates(self) -> Certificates:
        """The certificate that control signs for this node; of an agent without TLS, or with a certificate of
        its operator's, none."""
        return self._own or NoCertificates()

    def facts(self) -> dict[str, str]:
        return {} if self._own is None else self._own.facts()

    def proof(self) -> str:
        """Returns the credential by which a node that joins again proves that its id is its own."""
        return self._proof

    async def connect(self) -> AgentStream:
        """Raises StreamEnded and AgentRefused."""
        self._proof = ""
        token = self._credential.token()
        if token == self._credential.join_token:
            return await self._join(token)
        try:
            return await self._connect(token)
        except CertificateRefused as refused:
            if self._credential.join_token is None:
                raise
            log.warning("%s; this node joins again, with its join token", refused)
            self._proof = token
            return await self._join(self._credential.join_token)

    async def _join(self, token: str) -> AgentStream:
        if self._own is not None:
            self._own.forget()  # it goes with a credential of before
        return await self._connect(token)

    async def _connect(self, token: str) -> AgentStream:
        address = self._addresses.current
        ca, cert, key = await self._files(address)
        return await connect(address, token, ca=ca, cert=cert, key=key)

    async def _files(self, address: str) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Returns the authority, this node's certificate and its key (PEM)."""
        try:
            authority, certificate, key = _tls_files(self._options)
            ca = _pem(authority)
            if self._fingerprint is not None:
                from stoker.cli.agent.pinned_authority import pin

                folder = self._options.data_dir
                ca = read_authority(await asyncio.to_thread(pin, folder, address, self._fingerprint)).pem
        except TlsFilesUnusable as error:  # while they are renewed
            raise StreamEnded(str(error)) from None
        if self._own is None or certificate is not None:
            return ca, _pem(certificate), _pem(key)
        return ca, *self._shown()

    def _shown(self) -> tuple[bytes, bytes]:
        """Returns this node's certificate and its key; without one, those of a newcomer, which control may
        demand."""
        if self._own is not None and (pair := self._own.pair()) is not None:
            return pair[1], pair[0]
        from stoker.wire.newcomers import newcomer

        key, certificate = newcomer()
        return certificate, key

    @MANAGER.reloading()
    def check_files(self) -> None:
        """Says at SIGHUP whether the TLS files, which the next connection reads, can be used."""
        try:
            authority, certificate, _ = _tls_files(self._options)
        except TlsFilesUnusable as error:
            log.error("SIGHUP: the next connection to control would fail: %s", error)
            return
        log.info("SIGHUP: TLS files are read at each connection to control; options need a restart")
        for warning in warnings_now(authority, certificate):
            log.warning("%s", warning)

    def after_session(self, welcomed: bool) -> bool:
        """Returns whether to wait before the next connection, which may go to another address."""
        self._addresses, wait = after_session(self._addresses, welcomed=welcomed)
        return wait


def _fingerprint(options: ConnectionOptions) -> str | None:
    if options.ca_fingerprint is None:
        return None
    if options.tls_ca is not None:
        raise CliError("--ca-fingerprint finds the authority that --tls-ca names: give one of the two")
    from stoker.cli.agent.pinned_authority import checked_fingerprint

    return checked_fingerprint(options.ca_fingerprint)


def _check_secured(options: ConnectionOptions, addresses: tuple[str, ...]) -> None:
    if options.tls_ca is not None or options.ca_fingerprint is not None or options.insecure:
        return
    if away := [address for address in addresses if not stays_here(address)]:
        raise CliError(
            f"the join token and every job would go to {away[0]} in the clear: give --tls-ca, the"
            " authority that signed control's certificate, or --ca-fingerprint, as `stoker ca show` prints"
            " it, or --insecure"
        )


def _tls_files(options: ConnectionOptions) -> tuple[PemFile | None, PemFile | None, PemFile | None]:
    """Returns the authority, the certificate and its key. Raises TlsFilesUnusable."""
    authority = None if options.tls_ca is None else read_authority(options.tls_ca)
    if options.tls_cert is None or options.tls_key is None:
        return authority, None, None
    certificate = read_certificate(options.tls_cert)
    return authority, certificate, read_key(options.tls_key, certificate)


def _pem(file: PemFile | None) -> bytes | None:
    return None if file is None else file.pem
