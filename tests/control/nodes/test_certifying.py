"""The agents' port with certificates: who comes in over real TLS, what is signed, and when a session ends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from stoker.agent.link.grpc_stream import CertificateRefused, ConnectFailed, connect
from stoker.control.auth.authority import Authority
from stoker.control.config.tls import TlsFiles
from stoker.control.nodes import certifying
from stoker.control.nodes.certifying import NodeCertificates
from stoker.control.nodes.grpc_stream import GrpcServer, serve
from stoker.wire.newcomers import newcomer
from stoker.wire.streams import ControlStream, StreamEnded

LIFE_S = 3600.0


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


@dataclass(frozen=True)
class Shown:
    """A key and its certificate, as an agent shows them."""

    key: bytes
    certificate: bytes


def request_and_key() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, hashes.SHA256())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return request.public_bytes(Encoding.PEM), pem


@dataclass
class Door:
    """A server, and the authority whose files it would have."""

    server: GrpcServer
    certificates: NodeCertificates
    tls: TlsFiles
    authorities: list[Authority]

    @property
    def authority(self) -> Authority:
        return self.authorities[-1]

    def shown_by(self, node: str, credential: str) -> Shown:
        request, key = request_and_key()
        return Shown(key, self.certificates.answer(node, credential, request).certificate)

    async def call(self, token: str, shown: Shown) -> None:
        """Opens a session and ends it. Raises what the agent gets."""
        target = f"localhost:{self.server.port}"
        stream = await connect(
            target, token, ca=self.authorities[0].pem, cert=shown.certificate, key=shown.key
        )
        stream.end()
        await stream.closed()


async def anyone(token: str) -> str | None:
    return None


async def until_it_ends(stream: ControlStream, peer: str, token: str) -> None:
    """Waits until the agent ends: it must have been let in by then."""
    with contextlib.suppress(StreamEnded):
        await stream.receive()


@contextlib.asynccontextmanager
async def doors(folder: Path, *, required: bool = True) -> AsyncIterator[Door]:
    authorities = [Authority.make(time.time())]
    key, chain = authorities[0].sign_server(["localhost"], time.time())
    (folder / "control.pem").write_bytes(chain)
    (folder / "control.key").write_bytes(key)
    tls = TlsFiles(folder / "control.pem", folder / "control.key")
    certificates = NodeCertificates(lambda: authorities[-1], LIFE_S, time.time, required=required)
    server = await serve("127.0.0.1", 0, anyone, until_it_ends, tls, certified=certificates)
    try:
        yield Door(server, certificates, tls, authorities)
    finally:
        await server.stop(0)


NEWCOMER = Shown(*newcomer())


async def test_a_credential_comes_in_with_its_own_certificate_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with doors(tmp_path) as door:
        await door.call("nk_c1_s", door.shown_by("n1", "nk_c1_s"))
        with pytest.raises(CertificateRefused, match="goes with another credential"):
            await door.call("nk_c2_s", door.shown_by("n1", "nk_c1_s"))
        with pytest.raises(CertificateRefused, match="showed none of its own"):
            await door.call("nk_c1_s", NEWCOMER)
        with pytest.raises(CertificateRefused):
            await door.call("nk_c1_s", NEWCOMER)
    assert [name in caplog.text for name in ("credential c1 is refused", "credential c2 is refused")] == [
        True
    ] * 2
    assert caplog.text.count("credential c1 is refused") == 1


async def test_a_join_token_needs_none(tmp_path: Path) -> None:
    async with doors(tmp_path) as door:
        await door.call("jt_1_s", NEWCOMER)


async def test_who_shows_a_certificate_of_anybody_else_does_not_reach_the_door(tmp_path: Path) -> None:
    async with doors(tmp_path) as door:
        request, key = request_and_key()
        forged = replace(door.authority, key=ec.generate_private_key(ec.SECP256R1()))
        rogue = forged.sign_node(request, "n1", "c1", 1_800_000_000.0, LIFE_S)
        with pytest.raises(ConnectFailed, match="cannot reach control"):
            await door.call("nk_c1_s", Shown(key, rogue))
        ended = door.authority.sign_node(request, "n1", "c1", 1_600_000_000.0, LIFE_S)
        with pytest.raises(ConnectFailed, match="cannot reach control"):
            await door.call("nk_c1_s", Shown(key, ended))


async def test_where_certificates_are_issued_only_a_credential_alone_is_good(tmp_path: Path) -> None:
    """So a fleet changes over: nodes get theirs first, and then control requires them."""
    async with doors(tmp_path, required=False) as door:
        await door.call("nk_c1_s", NEWCOMER)
        await door.call("nk_c1_s", door.shown_by("n1", "nk_c1_s"))


async def test_after_a_rotation_both_authorities_count_until_the_older_is_dropped(tmp_path: Path) -> None:
    async with doors(tmp_path) as door:
        old = door.shown_by("n1", "nk_c1_s")
        door.authorities.append(door.authority.succeeded(time.time()))
        door.server.renew(door.tls)
        new = door.shown_by("n1", "nk_c1_s")
        assert door.authorities[0].certified(new.certificate) is None
        for shown in (old, new):
            await door.call("nk_c1_s", shown)
        door.authorities.append(door.authority.alone())
        door.server.renew(door.tls)
        await door.call("nk_c1_s", new)
        with pytest.raises(ConnectFailed):
            await door.call("nk_c1_s", old)


async def test_a_session_ends_with_its_certificate_unless_it_was_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(certifying, "LOOK_S", 0.0)
    clock, ended = Clock(), asyncio.Queue[str]()

    def disconnect(nodes: Iterable[str], why: str) -> None:
        for node in nodes:
            ended.put_nowait(f"{node}: {why}")

    authority = Authority.make(0.0)
    certificates = NodeCertificates(lambda: authority, LIFE_S, clock, required=True)
    certificates.answer("n1", "nk_c1_s", request_and_key()[0])
    certificates.answer("n2", "nk_c2_s", request_and_key()[0])
    clock.at = LIFE_S - 1.0
    certificates.answer("n2", "nk_c2_s", request_and_key()[0])
    watching = asyncio.create_task(certificates.run(disconnect))
    clock.at = LIFE_S
    assert await ended.get() == "n1: its certificate has ended, and was not renewed"
    clock.at = 2 * LIFE_S - 2.0
    await asyncio.sleep(0)
    assert ended.empty()
    clock.at = 2 * LIFE_S
    assert (await ended.get()).startswith("n2: ")
    watching.cancel()
    await asyncio.wait([watching])


async def test_a_request_that_cannot_be_granted_is_answered_with_the_reason() -> None:
    clock = Clock()
    authority = Authority.make(0.0)
    certificates = NodeCertificates(lambda: authority, LIFE_S, clock, required=False)
    assert "not PKCS #10" in certificates.answer("n1", "nk_c1_s", b"nothing").refusal
    clock.at = authority.ends_at
    assert "stoker ca rotate" in certificates.answer("n1", "nk_c1_s", request_and_key()[0]).refusal
