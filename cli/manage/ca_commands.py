"""`stoker ca ...`: makes, shows and rotates the private authority, and issues control's certificate with
it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from rich.console import Console

from stoker.cli import tables
from stoker.cli.consoles import plain_console
from stoker.cli.control.authority_files import AuthorityFiles
from stoker.cli.data_folder import DataFolder
from stoker.cli.errors import CliError
from stoker.control.auth.authority import Authority, RequestRefused, fingerprint
from stoker.control.rules.nodes.certificates import AuthorityEnded
from stoker.wire.tls_files import read_certificate

RELOAD = "a control that runs reads it at SIGHUP"


def init(data_dir: Path) -> None:
    files = _files(data_dir)
    if files.key.exists():
        raise CliError(f"there is an authority in {files.key.parent}: `stoker ca rotate` makes another one")
    made = Authority.make(time.time())
    files.write(made)
    _says().print(f"agents pin it with --ca-fingerprint {fingerprint(made.certificates[0])}", soft_wrap=True)


def issue(data_dir: Path, names: Sequence[str]) -> None:
    files = _files(data_dir)
    try:
        files.write_server(*files.read().sign_server(names, time.time()))
    except (RequestRefused, AuthorityEnded) as error:
        raise CliError(str(error)) from None
    _says().print(
        f"start control with --tls-cert {files.server} --tls-key {files.server_key}; {RELOAD}", soft_wrap=True
    )


def show(data_dir: Path, *, pem: bool) -> None:
    files = _files(data_dir)
    authority = files.read()
    if pem:
        sys.stdout.write(authority.pem.decode())
        return
    roles = ["signs", *["trusted"] * (len(authority.certificates) - 1)]
    rows = [(role, *_row(one)) for role, one in zip(roles, authority.certificates, strict=True)]
    pinned = authority.certificates[0]
    if files.server.exists():
        chain = read_certificate(files.server).certificates
        names = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = [str(name.value) for name in names]
        rows.append(("control", ", ".join(found), _day(chain[0]), ""))
        pinned = chain[-1]  # the one that the agents find behind it
    tables.show(("what", "name", "ends", "fingerprint"), rows, [], as_json=False)
    _says().print(f"agents join with --ca-fingerprint {fingerprint(pinned)}", soft_wrap=True)


def rotate(data_dir: Path, *, drop_old: bool) -> None:
    files = _files(data_dir)
    authority = files.read()
    if not drop_old:
        files.write(authority.succeeded(time.time()))
        _says().print(f"certificates are signed by the new authority from now on; {RELOAD}", soft_wrap=True)
        return
    if len(authority.certificates) == 1:
        raise CliError("there is no older authority to drop: `stoker ca rotate` makes a new one first")
    if files.server.exists() and read_certificate(files.server).certificates[-1] != authority.certificates[0]:
        raise CliError(
            "the certificate of control is of an older authority: issue it anew with `stoker ca issue`, once"
            " all nodes have renewed theirs"
        )
    files.write(authority.alone())
    _says().print(f"only the newest authority is trusted from now on; {RELOAD}", soft_wrap=True)


def _files(data_dir: Path) -> AuthorityFiles:
    return AuthorityFiles(DataFolder(data_dir.absolute()).authority)


def _row(certificate: x509.Certificate) -> tuple[str, str, str]:
    return certificate.subject.rfc4514_string(), _day(certificate), fingerprint(certificate)


def _day(certificate: x509.Certificate) -> str:
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    return f"{certificate.not_valid_after_utc:%Y-%m-%d} (in {left.days} days)"


def _says() -> Console:
    return plain_console(stderr=True)
