"""The private authority: the certificates that it signs for control and for nodes, and how one takes the
place of another. It touches no file.

The first certificate of an authority is the one that signs; all of them are trusted. So after `succeeded`,
what either has signed is accepted, until `alone` drops the older ones. Keys are of P-256: every TLS library
takes them, and a signature takes microseconds.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from stoker.control.rules.nodes.certificates import SKEW_S, Certified, validity
from stoker.wire.records import Hiding

AUTHORITY_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=397)
"""The most that browsers accept."""

REQUEST_MAX = 4096
NODE_MAX = 64
"""Bytes of a common name."""


class RequestRefused(Exception):
    """A request for a certificate cannot be granted; the message says why."""


class AuthorityUnusable(Exception):
    """The files of an authority do not make one; the message says why."""


class Authority(Hiding, frozen=True):
    """The authority that signs agents' certificates. `certificates`: the one that signs, and then the older
    ones that are trusted still."""

    HIDDEN = ("key",)

    key: ec.EllipticCurvePrivateKey
    certificates: tuple[x509.Certificate, ...]

    @classmethod
    def make(cls, now: float) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        common = f"stoker authority {secrets.token_hex(3)}"  # a name of its own: chains are built by names
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
        begin = datetime.fromtimestamp(now - SKEW_S, UTC)
        end = datetime.fromtimestamp(now, UTC) + AUTHORITY_LIFE
        usage = _usage(key_cert_sign=True, crl_sign=True)
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begin, end)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(key, (made.sign(key, hashes.SHA256()),))

    @classmethod
    def parse(cls, pem: bytes) -> Authority:
        """Reads the key, and the certificates behind it. Raises AuthorityUnusable."""
        try:
            found = tuple(x509.load_pem_x509_certificates(pem))
            private = load_pem_private_key(pem, None)
        except (ValueError, TypeError) as error:
            raise AuthorityUnusable(f"it cannot be read as PEM: {error}") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise AuthorityUnusable("the key is not of an elliptic curve")
        if found[0].public_key() != private.public_key():
            raise AuthorityUnusable("the key is not that of the first certificate")
        return cls(private, found)

    @property
    def pem(self) -> bytes:
        """The certificates of all that are trusted."""
        return b"".join(one.public_bytes(Encoding.PEM) for one in self.certificates)

    @property
    def key_pem(self) -> bytes:
        return _pem_of(self.key)

    @property
    def ends_at(self) -> float:
        return self.certificates[0].not_valid_after_utc.timestamp()

    def succeeded(self, now: float) -> Authority:
        """Returns a new authority that trusts what this one trusts, too."""
        made = Authority.make(now)
        return Authority(made.key, (*made.certificates, *self.certificates))

    def alone(self) -> Authority:
        """Returns this authority without the older ones."""
        return Authority(self.key, self.certificates[:1])

    def sign_server(self, names: Sequence[str], now: float) -> tuple[bytes, bytes]:
        """Returns a new key, and its certificate for a server of these names and IP addresses, followed by
        this authority's (both PEM). Raises RequestRefused and AuthorityEnded."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stoker control")])
        made = self._signed(subject, key.public_key(), now, SERVER_LIFE.total_seconds())
        made = made.add_extension(
            x509.SubjectAlternativeName([_name(one) for one in names]), critical=False
        ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        own = self.certificates[0].public_bytes(Encoding.PEM)
        return _pem_of(key), made.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM) + own

    def sign_node(self, request: bytes, node: str, credential: str, now: float, life_s: float) -> bytes:
        """Returns the certificate (PEM) of a node for the key of its request, in which nothing else counts.
        Raises RequestRefused and AuthorityEnded."""
        key = _key_of(request)
        if not 0 < len(node.encode()) <= NODE_MAX:
            raise RequestRefused(f"the id of a node with a certificate has at most {NODE_MAX} bytes")
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, credential),
                x509.NameAttribute(NameOID.COMMON_NAME, node),
            ]
        )
        made = self._signed(subject, key, now, life_s)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = made.add_extension(usage, critical=False).sign(self.key, hashes.SHA256())
        return signed.public_bytes(Encoding.PEM)

    def certified(self, pem: bytes) -> Certified | None:
        """Returns whom a node's certificate names; None for any that this authority, or one before that is
        trusted still, has not signed for a node. Anybody can make one that passes the handshake
        (`wire.newcomers`), so nothing of it is read before the signature is verified."""
        try:
            shown = x509.load_pem_x509_certificate(pem)
        except (ValueError, x509.InvalidVersion):
            return None
        if not self._has_signed(shown):
            return None
        try:
            usage = shown.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except x509.ExtensionNotFound:  # it is an authority's
            return None
        if ExtendedKeyUsageOID.CLIENT_AUTH not in usage:
            return None
        node, credential = (
            shown.subject.get_attributes_for_oid(oid)
            for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME)
        )
        if len(node) != 1 or len(credential) != 1:
            return None
        ends_at = shown.not_valid_after_utc.timestamp()
        return Certified(str(node[0].value), str(credential[0].value), ends_at)

    def _has_signed(self, shown: x509.Certificate) -> bool:
        for trusted in self.certificates:
            try:
                shown.verify_directly_issued_by(trusted)
            except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
                continue
            return True
        return False

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, now: float, life_s: float
    ) -> x509.CertificateBuilder:
        begin, end = (datetime.fromtimestamp(at, UTC) for at in validity(now, life_s, self.ends_at))
        own = self.certificates[0]
        made = x509.CertificateBuilder(own.subject, subject, key, x509.random_serial_number(), begin, end)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(issuer, critical=False)
        )


def fingerprint(certificate: x509.Certificate) -> str:
    """Returns the SHA-256 of a certificate, as the option of an agent that pins it has it."""
    return f"sha256:{certificate.fingerprint(hashes.SHA256()).hex()}"


def _key_of(request: bytes) -> ec.EllipticCurvePublicKey:
    if len(request) > REQUEST_MAX:
        raise RequestRefused(f"a request has at most {REQUEST_MAX} bytes, this one has {len(request)}")
    try:
        read = x509.load_pem_x509_csr(request)
        key, valid = read.public_key(), read.is_signature_valid
    except Exception as error:  # `cryptography` raises of several kinds for what a stranger may send
        raise RequestRefused(f"the request is not PKCS #10 in PEM: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise RequestRefused("the key of the request is not of P-256")
    if not valid:
        raise RequestRefused("the request is not signed by its own key")
    return key


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError:
        raise RequestRefused(f"{text!r} is neither an IP address nor an ASCII name of a host") from None


def _usage(**granted: bool) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment")
    more = ("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{name: granted.get(name, False) for name in (*names, *more)})


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
