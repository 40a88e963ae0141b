"""The private authority: what it signs, what it reads in what it signed, and the change to another one."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.auth.authority import Authority, AuthorityUnusable, RequestRefused
from stoker.control.rules.nodes.certificates import SKEW_S, AuthorityEnded, Certified
from stoker.wire.newcomers import newcomer

NOW = 1_800_000_000.0
OURS, ANOTHER = Authority.make(NOW), Authority.make(NOW)
KEY = ec.generate_private_key(ec.SECP256R1())


def request_of(key: Any = KEY, name: str = "whatever it says") -> bytes:
    asked = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    return x509.CertificateSigningRequestBuilder(asked).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def signed(by: Authority = OURS, node: str = "n1", credential: str = "c1", life_s: float = 3600.0) -> bytes:
    return by.sign_node(request_of(), node, credential, NOW, life_s)


NAMES = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=16).filter(str.strip)


@given(NAMES, st.from_regex(r"[0-9a-f]{12}", fullmatch=True))
def test_a_certificate_names_the_node_and_its_credential(node: str, credential: str) -> None:
    found = OURS.certified(signed(node=node, credential=credential))
    assert found == Certified(node, credential, NOW + 3600.0)


def test_nothing_of_the_request_counts_but_its_key() -> None:
    made = x509.load_pem_x509_certificate(OURS.sign_node(request_of(name="n9"), "n1", "c1", NOW, 3600.0))
    assert made.public_key() == KEY.public_key()
    assert "n9" not in made.subject.rfc4514_string()
    assert made.not_valid_before_utc.timestamp() == NOW - SKEW_S
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_certificate_of_anybody_else_names_nobody() -> None:
    assert OURS.certified(signed(ANOTHER)) is None
    assert OURS.certified(newcomer()[1]) is None
    assert OURS.certified(b"no certificate") is None
    assert OURS.certified(OURS.sign_server(["control.example.com"], NOW)[1]) is None, "it is a server's"
    assert OURS.certified(OURS.pem) is None


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (b"nothing", "not PKCS #10"),
        (b"x" * 4097, "at most 4096 bytes"),
        (request_of(ec.generate_private_key(ec.SECP384R1())), "not of P-256"),
        (request_of(rsa.generate_private_key(65537, 2048)), "not of P-256"),
    ],
)
def test_a_request_that_is_none_is_refused(request_: bytes, why: str) -> None:
    with pytest.raises(RequestRefused, match=why):
        OURS.sign_node(request_, "n1", "c1", NOW, 3600.0)


def test_a_request_that_its_key_did_not_sign_is_refused() -> None:
    der = bytearray(x509.load_pem_x509_csr(request_of()).public_bytes(Encoding.DER))
    der[-1] ^= 1
    damaged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    with pytest.raises(RequestRefused, match="not signed by its own key"):
        OURS.sign_node(damaged, "n1", "c1", NOW, 3600.0)


@pytest.mark.parametrize("node", ["", "n" * 65, "ü" * 33])
def test_an_id_that_no_subject_holds_is_refused(node: str) -> None:
    with pytest.raises(RequestRefused, match="at most 64 bytes"):
        signed(node=node)


def test_both_authorities_count_until_the_older_one_is_dropped() -> None:
    old = signed()
    both = OURS.succeeded(NOW + 1)
    assert both.certified(old) == Certified("n1", "c1", NOW + 3600.0)
    new = both.sign_node(request_of(), "n1", "c1", NOW, 3600.0)
    assert both.certified(new) is not None
    assert OURS.certified(new) is None, "the newer one signs"
    alone = both.alone()
    assert alone.certified(new) is not None
    assert alone.certified(old) is None


def test_an_authority_that_has_ended_signs_nothing() -> None:
    with pytest.raises(AuthorityEnded):
        OURS.sign_node(request_of(), "n1", "c1", OURS.ends_at, 60.0)
    with pytest.raises(AuthorityEnded):
        OURS.sign_server(["localhost"], OURS.ends_at)


def test_a_server_has_its_names_and_addresses_and_the_authority_behind_it() -> None:
    key, chain = OURS.sign_server(["control.example.com", "10.0.0.7", "fd00::7"], NOW)
    server, authority = x509.load_pem_x509_certificates(chain)
    server.verify_directly_issued_by(authority)
    assert authority == OURS.certificates[0]
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["control.example.com", "10.0.0.7", "fd00::7"]
    assert b"PRIVATE KEY" in key
    with pytest.raises(RequestRefused, match="neither an IP address nor"):
        OURS.sign_server(["bücher.example"], NOW)


def test_what_was_written_is_read_again() -> None:
    both = OURS.succeeded(NOW)
    read = Authority.parse(both.key_pem + both.pem)
    assert read.certificates == both.certificates
    assert read.certified(signed(both)) is not None
    assert "PRIVATE" not in repr(read)


@pytest.mark.parametrize(
    ("pem", "why"),
    [
        (b"", "cannot be read as PEM"),
        (OURS.pem, "cannot be read as PEM"),
        (OURS.key_pem, "cannot be read as PEM"),
        (ANOTHER.key_pem + OURS.pem, "not that of the first certificate"),
    ],
)
def test_what_is_no_authority_is_refused(pem: bytes, why: str) -> None:
    with pytest.raises(AuthorityUnusable, match=why):
        Authority.parse(pem)
