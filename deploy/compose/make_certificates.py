"""A certificate that is its own authority: `make_certificates.py FOLDER NAME…` writes cert.pem and key.pem.
The key belongs to the user of control's image. Where they are there, nothing is written.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID = timedelta(days=365)
USER = 10001


def main(folder: Path, names: list[str]) -> None:
    if (folder / "cert.pem").exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.now(UTC)
    alternatives = [*(x509.DNSName(name) for name in names), x509.IPAddress(ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8, plain = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made = folder / "key.pem"
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "wb") as file:
        file.write(key.private_bytes(pem, pkcs8, plain))
    if os.geteuid() == 0:
        os.chown(made, USER, USER)
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
