"""The certificate of a node's gateway port: made at each start of the agent, and kept nowhere."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_FROM = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_UNTIL = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
"""Control trusts this one certificate as long as the session lasts: neither side's clock must decide."""


def make_certificate(folder: Path) -> tuple[ssl.SSLContext, bytes]:
    """Returns the context of a server with a new key, and its certificate (DER). The key is in a file of
    `folder` for a moment, because `ssl` reads files only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stoker agent")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), _FROM, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.NamedTemporaryFile(dir=folder, prefix="gateway-") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.write(made.public_bytes(Encoding.PEM))
        file.flush()
        context.load_cert_chain(file.name)
    return context, made.public_bytes(Encoding.DER)
