"""PEM files of TLS: the reading of each, with a sentence that says which file is wrong and how.

A certificate that expires within 14 days, or has expired, is used nevertheless, with a warning: whoever
renews it in place may do so after the start. `cryptography` is imported when a file is read: an agent without
TLS goes without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

SOON = timedelta(days=14)


class TlsFilesUnusable(Exception):
    """The message names the file and says why it cannot be used."""


class PemFile(Struct, frozen=True):
    """A file that was read. `certificates` is empty for a key's."""

    what: str
    path: Path
    pem: bytes
    certificates: tuple[x509.Certificate, ...] = ()


def read_certificate(path: Path) -> PemFile:
    """Reads a certificate, followed by those of the authorities between it and a root. Raises
    TlsFilesUnusable."""
    return _with_certificates(_read("TLS certificate", path))


def read_authority(path: Path) -> PemFile:
    """Reads the certificates of the authorities that are trusted. Raises TlsFilesUnusable."""
    return _with_certificates(_read("TLS authority", path))


def read_key(path: Path, certificate: PemFile) -> PemFile:
    """Reads the key of the certificate. Raises TlsFilesUnusable."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    file = _read("TLS key", path)
    try:
        key = load_pem_private_key(file.pem, None)
    except TypeError:
        raise TlsFilesUnusable(f"{_named(file)} is encrypted; give a key that needs no password") from None
    except UnsupportedAlgorithm:  # for `cryptography`; OpenSSL may know it
        return file
    except ValueError:
        why = "is damaged" if b"PRIVATE KEY-----" in file.pem else "is not PEM with a block PRIVATE KEY"
        raise TlsFilesUnusable(f"{_named(file)} {why}") from None
    _check_fit(file, key, certificate)
    return file


def expiry_warnings(files: Sequence[PemFile], now: datetime) -> list[str]:
    """Returns a sentence for each file that has expired, will within 14 days, or is not valid yet.

    A chain is valid as long as all of its certificates are, authorities as long as the last of them is.
    """
    found = (_expiry_warning(file, now) for file in files if file.certificates)
    return [warning for warning in found if warning]


def warnings_now(*files: PemFile | None) -> list[str]:
    return expiry_warnings([file for file in files if file is not None], datetime.now(UTC))


def valid_until(file: PemFile) -> datetime:
    """Returns when the file ends: a chain with the first of its certificates, authorities with the last."""
    of_all = max if file.what == "TLS authority" else min
    return of_all(one.not_valid_after_utc for one in file.certificates)


def _expiry_warning(file: PemFile, now: datetime) -> str | None:
    end = valid_until(file)
    begin = file.certificates[0].not_valid_before_utc
    if end <= now:
        return f"{_named(file)} expired on {end:%Y-%m-%d at %H:%M} UTC: TLS connections fail; renew it"
    if end - now <= SOON:
        return f"{_named(file)} expires on {end:%Y-%m-%d at %H:%M} UTC, in {_until(end - now)}; renew it"
    if begin > now:
        return f"{_named(file)} is valid from {begin:%Y-%m-%d at %H:%M} UTC only; is this host's clock right?"
    return None


def _until(left: timedelta) -> str:
    number, unit = (left.days, "day") if left.days else (left.seconds // 3600, "hour")
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _read(what: str, path: Path) -> PemFile:
    try:
        return PemFile(what, path, path.read_bytes())
    except OSError as error:
        raise TlsFilesUnusable(f"the {what} {path} cannot be read: {error.strerror}") from None


def _with_certificates(file: PemFile) -> PemFile:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(file.pem)
    except ValueError:
        begun = b"-----BEGIN CERTIFICATE-----" in file.pem
        why = "is damaged" if begun else "is not PEM with a block CERTIFICATE"
        raise TlsFilesUnusable(f"{_named(file)} {why}") from None
    return PemFile(file.what, file.path, file.pem, tuple(found))


def _check_fit(file: PemFile, key: PrivateKeyTypes, certificate: PemFile) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        fits = certificate.certificates[0].public_key() == key.public_key()
    except (ValueError, UnsupportedAlgorithm):  # as above
        return
    if not fits:
        raise TlsFilesUnusable(
            f"{_named(file)} does not fit the certificate in {certificate.path}: its first certificate must"
            " be the one that was made for this key"
        )


def _named(file: PemFile) -> str:
    return f"the {file.what} {file.path}"
