"""The authority of control, found by its fingerprint at the first connection, and kept from then on.

The agent takes the certificates that control shows, without believing any, and keeps the one whose SHA-256 is
the fingerprint of the join command. Each connection, also the one that joins, is then verified with that one.
"""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
from pathlib import Path
from typing import Any

from stoker.agent.errors import AgentRefused
from stoker.cli.agent.node_certificate import AUTHORITIES
from stoker.cli.data_folder import write_private
from stoker.cli.errors import CliError
from stoker.wire.streams import StreamEnded

FINGERPRINT = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
WITHIN_S = 10.0


def checked_fingerprint(text: str) -> str:
    """Returns the 64 hexadecimal digits. Raises CliError."""
    found = FINGERPRINT.fullmatch(text.replace("SHA256:", "sha256:").strip())
    if found is None:
        raise CliError(
            f"--ca-fingerprint is sha256: and 64 hexadecimal digits, as `stoker ca show` prints; got {text!r}"
        )
    return found[1].lower()


def pin(folder: Path, address: str, fingerprint: str) -> Path:
    """Returns the file of the authorities, written first where there is none. Raises StreamEnded where
    control cannot be reached, and AgentRefused where it shows no certificate with this fingerprint."""
    path = folder / AUTHORITIES
    if path.exists():
        return path
    try:
        shown = certificates_shown_at(address)
    except OSError as error:
        raise StreamEnded(f"cannot reach control at {address}: {error}") from None
    for der in shown:
        if hashlib.sha256(der).hexdigest() == fingerprint:
            write_private(path, ssl.DER_cert_to_PEM_cert(der))
            return path
    raise AgentRefused(
        f"control at {address} shows no certificate with the fingerprint sha256:{fingerprint}: compare it"
        " with `stoker ca show` on control's host; if they are equal, something answers in its place"
    )


def certificates_shown_at(address: str) -> list[bytes]:
    """Returns the certificates (DER) that a TLS server shows. Nothing is sent to it. Raises OSError."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host.strip("[]"), int(port)), timeout=WITHIN_S) as plain,
        context.wrap_socket(plain, server_hostname=host.strip("[]")) as secured,
    ):
        chain: Any = getattr(secured, "get_unverified_chain", None)
        if chain is None:  # before Python 3.13 it has no public name
            found = secured._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
            return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in found]
        return list(chain())
