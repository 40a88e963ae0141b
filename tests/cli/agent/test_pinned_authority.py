"""The authority of control, found by its fingerprint: over real TLS, and nothing else is believed."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stoker.agent.errors import AgentRefused
from stoker.cli.agent.controls import ConnectionOptions, Controls, NodeCredential
from stoker.cli.agent.node_certificate import AUTHORITIES
from stoker.cli.agent.pinned_authority import checked_fingerprint, pin
from stoker.cli.errors import CliError
from stoker.control.auth.authority import Authority, fingerprint
from stoker.wire.streams import StreamEnded

OURS, ANOTHER = Authority.make(time.time()), Authority.make(time.time())


def pinned_of(authority: Authority) -> str:
    return checked_fingerprint(fingerprint(authority.certificates[0]))


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """A server with a certificate of ours."""
    key, chain = OURS.sign_server(["localhost"], time.time())
    (tmp_path / "pair.pem").write_bytes(key + chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    (tmp_path / "pair.pem").unlink()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_the_authority_with_the_fingerprint_is_kept(address: str, tmp_path: Path) -> None:
    file = await asyncio.to_thread(pin, tmp_path, address, pinned_of(OURS))
    assert file.read_bytes() == OURS.pem
    assert await asyncio.to_thread(pin, tmp_path, "127.0.0.1:1", pinned_of(OURS)) == file, "looked for once"


async def test_another_authority_is_not_believed(address: str, tmp_path: Path) -> None:
    with pytest.raises(AgentRefused, match="shows no certificate with the fingerprint"):
        await asyncio.to_thread(pin, tmp_path, address, pinned_of(ANOTHER))
    assert os.listdir(tmp_path) == []


async def test_a_control_that_is_not_there_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(StreamEnded, match=r"cannot reach control at 127\.0\.0\.1:1"):
        await asyncio.to_thread(pin, tmp_path, "127.0.0.1:1", pinned_of(OURS))


@pytest.mark.parametrize("text", ["", "sha256:abc", "g" * 64, "md5:" + "0" * 64])
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="--ca-fingerprint is sha256: and 64 hexadecimal digits"):
        checked_fingerprint(text)


def test_a_fingerprint_secures_a_control_elsewhere_and_excludes_a_file(tmp_path: Path) -> None:
    text = fingerprint(OURS.certificates[0])
    credential = NodeCredential(tmp_path, "jt")
    Controls(ConnectionOptions("192.0.2.1:1", tmp_path, ca_fingerprint=text), credential)
    both = ConnectionOptions("192.0.2.1:1", tmp_path, tmp_path / AUTHORITIES, ca_fingerprint=text)
    with pytest.raises(CliError, match="give one of the two"):
        Controls(both, credential)
