"""The certificate of a node on its host: requested, kept, renewed, and shown."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from cryptography import x509

from stoker.cli.agent.node_certificate import AGAIN_S, AUTHORITIES, CERTIFICATE, NodeCertificate
from stoker.cli.errors import CliError
from stoker.control.auth.authority import Authority
from stoker.control.rules.nodes.certificates import SKEW_S
from stoker.wire.messages import CertificateAnswer

NOW = 1_800_000_000.0
LIFE_S = 86_400.0
AUTHORITY = Authority.make(NOW)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def node(folder: Path, clock: Clock, *, pinned: bool = False) -> NodeCertificate:
    return NodeCertificate(folder, pinned=pinned, wall=clock)


def answer(request: bytes, clock: Clock, credential: str = "c1") -> CertificateAnswer:
    made = AUTHORITY.sign_node(request, "n1", credential, clock.now, LIFE_S)
    return CertificateAnswer(made, AUTHORITY.pem)


def test_a_node_keeps_key_and_certificate_for_itself(tmp_path: Path, clock: Clock) -> None:
    ours = node(tmp_path, clock)
    assert ours.pair() is None
    assert ours.facts() == {}
    request = ours.request()
    assert b"PRIVATE KEY" not in request
    assert not (tmp_path / CERTIFICATE).exists(), "a key without a certificate is of no use"
    ours.answered(answer(request, clock))
    assert (tmp_path / CERTIFICATE).stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / AUTHORITIES).exists(), "its operator's file has them"
    again = node(tmp_path, clock).pair()
    assert again == ours.pair()
    assert again is not None
    key, certificate = again
    assert b"PRIVATE KEY" in key
    assert b"PRIVATE KEY" not in certificate
    assert AUTHORITY.certified(certificate) is not None
    assert ours.facts() == {"certificate_ends": "2027-01-16T08:00:00Z"}


def test_a_certificate_is_renewed_with_a_new_key_and_used_until_then(tmp_path: Path, clock: Clock) -> None:
    ours = node(tmp_path, clock)
    ours.answered(answer(ours.request(), clock))
    before = ours.pair()
    clock.now += LIFE_S / 4 - SKEW_S
    assert ours.request() == b""
    clock.now += SKEW_S
    request = ours.request()
    assert x509.load_pem_x509_csr(request).public_key() == x509.load_pem_x509_csr(ours.request()).public_key()
    assert ours.pair() == before
    ours.answered(answer(request, clock))
    assert ours.pair() != before
    assert ours.request() == b""


def test_a_certificate_that_has_ended_is_not_shown(tmp_path: Path, clock: Clock) -> None:
    ours = node(tmp_path, clock)
    ours.answered(answer(ours.request(), clock))
    clock.now += LIFE_S
    assert ours.pair() is None
    assert ours.request() != b""


def test_a_pinned_authority_is_replaced_by_those_that_control_sends(tmp_path: Path, clock: Clock) -> None:
    ours = node(tmp_path, clock, pinned=True)
    ours.answered(answer(ours.request(), clock))
    assert (tmp_path / AUTHORITIES).read_bytes() == AUTHORITY.pem


def test_a_refusal_is_logged_and_asked_again_later(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ours = node(tmp_path, clock)
    ours.answered(CertificateAnswer(refusal="the authority has ended"))
    assert "signs no certificate for this node: the authority has ended" in caplog.text
    assert ours.request() == b""
    clock.now += AGAIN_S
    assert ours.request() != b""


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (CertificateAnswer(b"none", AUTHORITY.pem), "cannot be kept"),
        (CertificateAnswer(AUTHORITY.pem, AUTHORITY.pem), "not for the key that was made here"),
        (CertificateAnswer(b"", b""), "cannot be kept"),
    ],
)
def test_what_is_no_certificate_of_this_node_is_not_kept(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture, part: CertificateAnswer, why: str
) -> None:
    ours = node(tmp_path, clock, pinned=True)
    ours.request()
    ours.answered(part)
    assert why in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_without_an_authority_is_not_kept(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ours = node(tmp_path, clock, pinned=True)
    made = answer(ours.request(), clock)
    ours.answered(CertificateAnswer(made.certificate, b""))
    assert ours.pair() is None
    assert list(tmp_path.iterdir()) == []


def test_what_is_dropped_is_requested_anew(tmp_path: Path, clock: Clock) -> None:
    """Even while it is good: it goes with a credential of before."""
    ours = node(tmp_path, clock)
    ours.answered(answer(ours.request(), clock))
    ours.forget()
    assert ours.pair() is None
    assert ours.request() != b""


def test_a_damaged_file_is_replaced_and_one_that_others_read_is_refused(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / CERTIFICATE
    file.write_text("half of a")
    file.chmod(0o600)
    caplog.set_level(logging.ERROR)
    assert node(tmp_path, clock).request() != b""
    assert "is damaged" in caplog.text
    file.chmod(0o640)
    with pytest.raises(CliError, match="others may read it"):
        node(tmp_path, clock)
