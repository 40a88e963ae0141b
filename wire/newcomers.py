"""The authority of newcomers: a key that everybody knows, which signs the certificates of agents that have
none.

gRPC in Python either demands certificates of callers or does not request any. A port that demands them is to
be reached by a node that joins, too. So such a node makes itself a certificate of this authority, which the
port accepts in the handshake and which names nobody: what follows is decided by the token.

So the handshake keeps nobody out. With this key anybody makes whatever passes it, certificates with the names
of nodes and of authorities, too. Control believes the signatures of its own authority alone
(`control.auth.authority`), and agents are never given this one to trust.
"""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_KEY = ec.derive_private_key(1, ec.SECP256R1())
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stoker newcomers")])
_FROM = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_UNTIL = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
"""Neither side's clock must decide."""


def authority() -> bytes:
    """Returns the certificate of the authority (PEM)."""
    made = _certificate(_NAME, _KEY.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    return made.sign(_KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


def newcomer() -> tuple[bytes, bytes]:
    """Returns a new key and its certificate of this authority (both PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stoker newcomer")])
    made = (
        _certificate(name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    pem = made.sign(_KEY, hashes.SHA256()).public_bytes(Encoding.PEM)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), pem


def _certificate(name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(_NAME, name, key, x509.random_serial_number(), _FROM, _UNTIL)
