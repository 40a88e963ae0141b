"""The agents' port with certificates: who comes in over real TLS, what is signed, and when a session ends."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from stoker.agent.link.grpc_stream import CertificateRefused, ConnectFailed, connect
from stoker.control.auth.authority import Authority
from stoker.control.config.tls import TlsFiles
from stoker.control.nodes import certifying
from stoker.control.nodes.certifying import NodeCertificates
from stoker.control.nodes.grpc_stream import GrpcServer, serve
from stoker.wire import newcomers
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


def der(tag: int, body: bytes) -> bytes:
    size = len(body)
    return bytes([tag, size] if size < 128 else [tag, 0x82, size >> 8, size & 0xFF]) + body


def with_an_extension_twice() -> Shown:
    """A newcomer's, whose key everybody has; no library makes such a one."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = newcomers._certificate(x509.Name([]), key.public_key())
    for oid in ("1.2.3.4", "1.2.3.5"):
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), b"\x05\x00")
        made = made.add_extension(extension, critical=False)
    signed = made.sign(newcomers._KEY, hashes.SHA256()).tbs_certificate_bytes
    signed = signed.replace(b"\x06\x03\x2a\x03\x05", b"\x06\x03\x2a\x03\x04")
    signature = newcomers._KEY.sign(signed, ec.ECDSA(hashes.SHA256()))
    algorithm = der(0x30, b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02")
    whole = der(0x30, signed + algorithm + der(0x03, b"\x00" + signature))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Shown(pem, ssl.DER_cert_to_PEM_cert(whole).encode())


async def test_a_certificate_that_cannot_be_read_is_none_of_its_own(tmp_path: Path) -> None:
    """It passes the handshake; the library of the certificates raises where it reads the extensions."""
    rogue = with_an_extension_twice()
    with pytest.raises(x509.DuplicateExtension):
        _ = x509.load_pem_x509_certificate(rogue.certificate).extensions
    async with doors(tmp_path) as door:
        with pytest.raises(CertificateRefused, match="showed none of its own"):
            await door.call("nk_c1_s", rogue)
        await door.call("jt_1_s", rogue)


def signed_by_newcomers(subject: x509.Name, key: Any, *, ca: bool) -> x509.Certificate:
    made = newcomers._certificate(subject, key.public_key()).add_extension(
        x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True
    )
    return made.sign(newcomers._KEY, hashes.SHA256())


async def test_the_key_that_everybody_knows_makes_no_authority_and_names_no_node(tmp_path: Path) -> None:
    """Neither a node's certificate of its own making, nor an authority below it with the name of ours: the
    handshake, which does not hold a root to its path length, lets both through."""
    async with doors(tmp_path) as door:
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        node = door.shown_by("n1", "nk_c1_s").certificate
        subject = x509.load_pem_x509_certificate(node).subject
        forged = signed_by_newcomers(subject, key, ca=False).public_bytes(Encoding.PEM)
        with pytest.raises(CertificateRefused, match="showed none of its own"):
            await door.call("nk_c1_s", Shown(pem, forged))

        between = replace(door.authority, key=ec.generate_private_key(ec.SECP256R1()))
        below = signed_by_newcomers(between.certificates[0].subject, between.key, ca=True)
        request, own = request_and_key()
        chain = between.sign_node(request, "n1", "c1", time.time(), LIFE_S) + below.public_bytes(Encoding.PEM)
        with pytest.raises((CertificateRefused, ConnectFailed)):
            await door.call("nk_c1_s", Shown(own, chain))


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


async def test_agents_are_not_given_the_authority_of_newcomers() -> None:
    authority = Authority.make(0.0)
    certificates = NodeCertificates(lambda: authority, LIFE_S, Clock(), required=True)
    answer = certificates.answer("n1", "nk_c1_s", request_and_key()[0])
    assert answer.authorities == authority.pem
    trusted = x509.load_pem_x509_certificates(certificates.trusted or b"")
    assert [one.public_key() == newcomers._KEY.public_key() for one in trusted] == [False, True]


async def test_a_request_that_cannot_be_granted_is_answered_with_the_reason() -> None:
    clock = Clock()
    authority = Authority.make(0.0)
    certificates = NodeCertificates(lambda: authority, LIFE_S, clock, required=False)
    assert "not PKCS #10" in certificates.answer("n1", "nk_c1_s", b"nothing").refusal
    clock.at = authority.ends_at
    assert "stoker ca rotate" in certificates.answer("n1", "nk_c1_s", request_and_key()[0]).refusal
