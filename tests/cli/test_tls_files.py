"""The sentences about TLS files, at the start of control and of an agent."""

from __future__ import annotations

import dataclasses
import logging
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace

from stoker.cli.agent.controls import ConnectionOptions, Controls, NodeCredential
from stoker.cli.control.process import run_control
from stoker.cli.daemons.options import ControlOptions
from stoker.cli.errors import CliError
from stoker.cli.expected_errors import is_expected
from stoker.control.config.tls import TlsFiles
from stoker.wire.streams import StreamEnded
from stoker.wire.tls_files import (
    TlsFilesUnusable,
    expiry_warnings,
    read_authority,
    read_certificate,
    warnings_now,
)
from tests.certificates import Certificate, make_certificate


@pytest.fixture
def made(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


def _encrypted(key: bytes) -> bytes:
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


def _control_checks(files: TlsFiles, folder: Path) -> None:
    files.certificates()


def _agent_checks(files: TlsFiles, folder: Path) -> None:
    options = ConnectionOptions("192.0.2.1:1", folder, tls_ca=files.client_ca)
    Controls(
        dataclasses.replace(options, tls_cert=files.cert, tls_key=files.key), NodeCredential(folder, "jt")
    )


@pytest.mark.parametrize("check", [_control_checks, _agent_checks])
@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("cert", None, r"the TLS certificate \S+cert.pem cannot be read: No such file or directory"),
        ("cert", b"", r"the TLS certificate \S+cert.pem is not PEM with a block CERTIFICATE"),
        ("cert", b"\x30\x82\x01\x00", r"the TLS certificate \S+cert.pem is not PEM with a block CERTIFICATE"),
        ("cert", "cut", r"the TLS certificate \S+cert.pem is damaged"),
        ("cert", "key", r"the TLS certificate \S+cert.pem is not PEM with a block CERTIFICATE"),
        ("key", None, r"the TLS key \S+key.pem cannot be read: No such file or directory"),
        ("key", b"\xff\xfe", r"the TLS key \S+key.pem is not PEM with a block PRIVATE KEY"),
        ("key", "cert", r"the TLS key \S+key.pem is not PEM with a block PRIVATE KEY"),
        ("key", "cut", r"the TLS key \S+key.pem is damaged"),
        ("key", "other", r"the TLS key \S+key.pem does not fit the certificate in \S+cert.pem"),
        ("key", "encrypted", r"the TLS key \S+key.pem is encrypted; give a key that needs no password"),
        ("client_ca", None, r"the TLS authority \S+ca.pem cannot be read: No such file or directory"),
        ("client_ca", b"hello", r"the TLS authority \S+ca.pem is not PEM with a block CERTIFICATE"),
        ("client_ca", "cut", r"the TLS authority \S+ca.pem is damaged"),
    ],
)
def test_the_sentence_says_which_file_is_wrong_and_how(
    tmp_path: Path, made: Certificate, check: object, file: str, content: bytes | str | None, sentence: str
) -> None:
    (tmp_path / "ca.pem").write_bytes(made.pem)
    files = replace(made.files, client_ca=tmp_path / "ca.pem")
    check(files, tmp_path)  # type: ignore[operator]  # all three are good
    wrong = getattr(files, file)
    whole = wrong.read_bytes()
    (tmp_path / "other").mkdir()
    known = {
        "cut": whole[:60] + b"\n" + whole.splitlines()[-1] + b"\n",
        "cert": made.pem,
        "key": made.key,
        "other": make_certificate(tmp_path / "other").key,
        "encrypted": _encrypted(made.key),
    }
    wrong.unlink()
    if content is not None:
        wrong.write_bytes(known[content] if isinstance(content, str) else content)
    with pytest.raises(TlsFilesUnusable, match=sentence) as raised:
        check(files, tmp_path)  # type: ignore[operator]
    assert is_expected(raised.value)  # the command shows the sentence, not a traceback


def test_a_folder_is_reported_as_one(tmp_path: Path, made: Certificate) -> None:
    with pytest.raises(TlsFilesUnusable, match=r"the TLS authority .* cannot be read: Is a directory"):
        read_authority(tmp_path)


@pytest.mark.parametrize(
    ("valid", "sentence"),
    [
        (timedelta(days=-1), r"expired on \d{4}-\d\d-\d\d at \d\d:\d\d UTC: TLS connections fail; renew it"),
        (timedelta(hours=5.5), r"expires on .* UTC, in 5 hours; renew it"),
        (timedelta(days=1.5), r"expires on .* UTC, in 1 day; renew it"),
        (timedelta(days=13.5), r"expires on .* UTC, in 13 days; renew it"),
        (timedelta(days=15), None),
    ],
)
async def test_a_certificate_that_has_expired_or_will_soon_is_a_warning(
    tmp_path: Path, valid: timedelta, sentence: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    files = make_certificate(tmp_path, valid).files
    files = replace(files, client_ca=files.cert)
    both = [f"the TLS {what} {files.cert} {sentence}" for what in ("authority", "certificate") if sentence]

    _agent_checks(files, tmp_path)
    assert_logged(caplog, both)

    no_folder = tmp_path / "cert.pem"  # what ends control's start right after its look at the files
    options = ControlOptions(no_folder, None, "127.0.0.1", 0, "127.0.0.1", 0)
    options = dataclasses.replace(
        options, tls_cert=files.cert, tls_key=files.key, tls_client_ca=files.client_ca
    )
    with pytest.raises(CliError, match="cannot be made"):
        await run_control(options, {})
    assert_logged(caplog, both[::-1])


def assert_logged(caplog: pytest.LogCaptureFixture, sentences: list[str]) -> None:
    found = caplog.messages
    assert len(found) == len(sentences)
    assert all(re.fullmatch(sentence, text) for sentence, text in zip(sentences, found, strict=True))
    caplog.clear()


def test_a_chain_ends_with_its_first_certificate_and_a_bundle_with_its_last(tmp_path: Path) -> None:
    for name, days in (("old", -1), ("new", 90)):
        (tmp_path / name).mkdir()
        make_certificate(tmp_path / name, timedelta(days=days))
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "new/cert.pem").read_bytes() + (tmp_path / "old/cert.pem").read_bytes())
    assert len(warnings_now(read_certificate(both))) == 1
    assert warnings_now(read_authority(both)) == []


def test_a_certificate_of_tomorrow_is_a_warning(made: Certificate) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    (warning,) = expiry_warnings([read_certificate(made.files.cert)], yesterday)
    assert warning.endswith("only; is this host's clock right?")


async def test_an_agent_tries_again_while_its_certificate_is_renewed(
    tmp_path: Path, made: Certificate
) -> None:
    options = ConnectionOptions("192.0.2.1:1", tmp_path, tls_ca=made.files.cert)
    connect_once = Controls(options, NodeCredential(tmp_path, "jt")).connect
    made.files.cert.unlink()
    with pytest.raises(StreamEnded, match=r"the TLS authority .* cannot be read: No such file"):
        await connect_once()
