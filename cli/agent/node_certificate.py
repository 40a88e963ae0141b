"""The certificate of this node: its key is made here and never leaves the host; control signs a certificate
for it.

    node_certificate   the key, and the certificate that control signed for it (mode 0600), in one file:
                       a crash leaves the old pair or the new one
    authorities.pem    the authorities that control's certificate may be of, where --ca-fingerprint pins one

The certificate of a key that was requested for is kept when it comes. Until then the earlier pair is in use.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.agent.link.certificate_life import Life, life_of
from stoker.cli.data_folder import read_private, write_private
from stoker.wire.messages import CertificateAnswer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

log = logging.getLogger(__name__)

CERTIFICATE, AUTHORITIES = "node_certificate", "authorities.pem"
_BEGIN = "-----BEGIN CERTIFICATE-----"

AGAIN_S = 60.0
"""The pause after a refusal."""


class NodeCertificate:
    """Implements `agent.interfaces.Certificates` on the files of a data folder. `pinned`: authorities that
    come with a certificate are kept, too."""

    def __init__(self, folder: Path, *, pinned: bool, wall: Callable[[], float] = time.time) -> None:
        self._file, self._authorities = folder / CERTIFICATE, folder / AUTHORITIES
        self._pinned, self._wall = pinned, wall
        self._requested: EllipticCurvePrivateKey | None = None
        self._not_before = 0.0
        self._key, self._pem, self._life = b"", b"", (0.0, 0.0)
        self._load()

    def _load(self) -> None:
        """Reads the file, if there is one. Raises CliError where others may read it."""
        from cryptography import x509

        try:
            text = read_private(self._file)
        except FileNotFoundError:
            return
        key, begin, certificate = text.partition(_BEGIN)
        try:
            read = x509.load_pem_x509_certificate((begin + certificate).encode())
        except ValueError:
            log.error("%s is damaged: the node requests another certificate", self._file)
            return
        self._key, self._pem = key.encode(), (begin + certificate + "\n").encode()
        self._life = read.not_valid_before_utc.timestamp(), read.not_valid_after_utc.timestamp()

    @property
    def ended(self) -> bool:
        """True for a certificate that has ended, by this host's clock; False where there is none."""
        return bool(self._pem) and life_of(*self._life, self._wall()) is Life.ENDED

    def pair(self) -> tuple[bytes, bytes] | None:
        """Returns the key and the certificate (PEM); None where there is none that is good."""
        return None if not self._pem or self.ended else (self._key, self._pem)

    def forget(self) -> None:
        """Drops the certificate, which is of no use with another credential. The file stays until the next
        one comes."""
        self._key, self._pem, self._not_before = b"", b"", 0.0

    def facts(self) -> dict[str, str]:
        """Returns when the certificate ends, as a fact about the node."""
        if not self._pem:
            return {}
        return {"certificate_ends": datetime.fromtimestamp(self._life[1], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}

    def request(self) -> bytes:
        """Returns a request for a certificate (PKCS #10 in PEM), if one is due; else nothing."""
        now = self._wall()
        if now < self._not_before or (self._pem and life_of(*self._life, now) is Life.GOOD):
            return b""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding

        if self._requested is None:
            self._requested = ec.generate_private_key(ec.SECP256R1())
        request = x509.CertificateSigningRequestBuilder(x509.Name([]))
        return request.sign(self._requested, hashes.SHA256()).public_bytes(Encoding.PEM)

    def answered(self, answer: CertificateAnswer) -> None:
        """Keeps the certificate, which is used from the next connection on."""
        if answer.refusal:
            self._not_before = self._wall() + AGAIN_S
            log.warning("control signs no certificate for this node: %s", answer.refusal)
            return
        try:
            self._keep(answer)
        except (OSError, ValueError) as error:
            self._not_before = self._wall() + AGAIN_S
            log.error("the node's certificate cannot be kept in %s: %s", self._file, error)
            return
        log.info("the node's certificate is good until %s", self.facts()["certificate_ends"])

    def _keep(self, answer: CertificateAnswer) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = self._requested
        read = x509.load_pem_x509_certificate(answer.certificate)
        if key is None or read.public_key() != key.public_key():
            raise ValueError("it is not for the key that was made here")
        if not x509.load_pem_x509_certificates(answer.authorities):
            raise ValueError("no authority came with it")
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        if self._pinned:
            write_private(self._authorities, answer.authorities.decode())
        write_private(self._file, (pem + answer.certificate).decode())
        self._requested = None
        self._load()
