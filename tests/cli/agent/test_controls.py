"""How an agent comes in: with what it has, and with its join token where control refuses its certificate."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stoker.agent.link.grpc_stream import CertificateRefused
from stoker.cli.agent.controls import ConnectionOptions, Controls, NodeCredential
from stoker.cli.agent.node_certificate import AUTHORITIES, CERTIFICATE
from stoker.control.auth.authority import Authority, fingerprint
from stoker.control.config.tls import TlsFiles
from stoker.control.nodes.certifying import NodeCertificates
from stoker.control.nodes.grpc_stream import GrpcServer, serve
from stoker.wire.streams import ControlStream, StreamEnded

CREDENTIAL, JOIN = "nk_c1_secret", "jt_1_secret"


@dataclass
class Door:
    """A control that requires certificates, and the tokens that came in."""

    authority: Authority
    certificates: NodeCertificates
    server: GrpcServer
    tokens: list[str] = field(default_factory=list)

    async def let_in(self, stream: ControlStream, peer: str, token: str) -> None:
        self.tokens.append(token)
        with suppress(StreamEnded):
            await stream.receive()  # until the agent ends: it must have been let in by then

    def options(self, folder: Path) -> ConnectionOptions:
        pinned = fingerprint(self.authority.certificates[0])
        return ConnectionOptions(f"localhost:{self.server.port}", folder, ca_fingerprint=pinned)


async def anyone(token: str) -> str | None:
    return None


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    authority = Authority.make(time.time())
    key, chain = authority.sign_server(["localhost"], time.time())
    (tmp_path / "control.pem").write_bytes(chain)
    (tmp_path / "control.key").write_bytes(key)
    tls = TlsFiles(tmp_path / "control.pem", tmp_path / "control.key")
    certificates = NodeCertificates(lambda: authority, 3600.0, time.time, required=True)
    made: list[Door] = []

    async def let_in(stream: ControlStream, peer: str, token: str) -> None:
        await made[0].let_in(stream, peer, token)

    server = await serve("127.0.0.1", 0, anyone, let_in, tls, certified=certificates)
    made.append(Door(authority, certificates, server))
    try:
        yield made[0]
    finally:
        await server.stop(0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "agent"
    made.mkdir()
    return made


async def comes(controls: Controls) -> None:
    stream = await controls.connect()
    stream.end()
    await stream.closed()


async def test_a_new_node_joins_and_comes_back_with_what_it_got(door: Door, folder: Path) -> None:
    credential = NodeCredential(folder, JOIN)
    controls = Controls(door.options(folder), credential)
    await comes(controls)
    assert controls.proof() == ""
    credential.keep(CREDENTIAL)
    request = controls.certificates.request()
    controls.certificates.answered(door.certificates.answer("n1", CREDENTIAL, request))
    await comes(controls)
    assert door.tokens == [JOIN, CREDENTIAL]
    assert (folder / AUTHORITIES).read_bytes() == door.authority.pem
    assert "certificate_ends" in controls.facts()


async def test_a_node_without_a_good_certificate_joins_again_and_proves_its_id(
    door: Door, folder: Path
) -> None:
    credential = NodeCredential(folder, JOIN)
    credential.keep(CREDENTIAL)
    controls = Controls(door.options(folder), credential)
    await comes(controls)
    assert door.tokens == [JOIN]
    assert controls.proof() == CREDENTIAL


async def test_without_a_join_token_it_is_told_what_to_do(door: Door, folder: Path) -> None:
    credential = NodeCredential(folder, None)
    credential.keep(CREDENTIAL)
    with pytest.raises(CertificateRefused, match="start its agent with a join token"):
        await comes(Controls(door.options(folder), credential))
    assert door.tokens == []


async def test_a_node_that_joins_requests_a_certificate_whatever_it_has(door: Door, folder: Path) -> None:
    """Its file is of before it was turned out."""
    credential = NodeCredential(folder, JOIN)
    controls = Controls(door.options(folder), credential)
    request = controls.certificates.request()
    controls.certificates.answered(door.certificates.answer("n1", "nk_earlier_secret", request))
    assert controls.certificates.request() == b""
    await comes(controls)
    assert controls.certificates.request() != b""
    assert (folder / CERTIFICATE).exists(), "until the next one comes"


async def test_an_agent_with_a_certificate_of_its_operators_requests_none(door: Door, folder: Path) -> None:
    key, certificate = door.authority.sign_server(["localhost"], time.time())
    (folder / "own.pem").write_bytes(certificate)
    (folder / "own.key").write_bytes(key)
    options = ConnectionOptions(
        "127.0.0.1:1", folder, folder / "own.pem", folder / "own.pem", folder / "own.key"
    )
    assert Controls(options, NodeCredential(folder, JOIN)).certificates.request() == b""
