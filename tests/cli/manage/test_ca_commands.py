"""`stoker ca`: an authority made, shown, rotated; the certificate of control."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography import x509

from stoker.cli.control.authority_files import AuthorityFiles, is_exposed
from stoker.cli.main import main
from stoker.control.auth.authority import fingerprint
from stoker.wire.tls_files import TlsFilesUnusable, read_certificate, read_key


def run(folder: Path, *command: str, status: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ca", *command, "--data-dir", str(folder)])
    assert ended.value.code == status


@pytest.fixture
def files(tmp_path: Path) -> AuthorityFiles:
    return AuthorityFiles(tmp_path / "ca")


def test_an_authority_is_made_once_and_its_key_is_private(
    tmp_path: Path, files: AuthorityFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "init")
    made = files.read()
    assert f"--ca-fingerprint {fingerprint(made.certificates[0])}" in capsys.readouterr().err
    assert files.key.stat().st_mode & 0o777 == 0o600
    assert files.certificates.read_bytes() == made.pem
    assert b"PRIVATE" not in files.certificates.read_bytes()
    run(tmp_path, "init", status=1)
    assert "`stoker ca rotate` makes another one" in capsys.readouterr().err
    assert files.read().certificates == made.certificates


def test_control_has_a_certificate_without_openssl(
    tmp_path: Path, files: AuthorityFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "init")
    run(tmp_path, "issue", "control.example.com", "10.0.0.7")
    certificate = read_certificate(files.server)
    read_key(files.server_key, certificate)
    assert files.server_key.stat().st_mode & 0o777 == 0o600
    assert f"--tls-cert {files.server} --tls-key {files.server_key}" in capsys.readouterr().err
    run(tmp_path, "issue", "no name of a hôst", status=1)
    assert "neither an IP address nor an ASCII name" in capsys.readouterr().err
    assert read_certificate(files.server).pem == certificate.pem, "what was there stays"


def test_it_is_shown_for_people_and_for_those_who_trust_it(
    tmp_path: Path, files: AuthorityFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "show", status=1)
    assert "there is no authority in" in capsys.readouterr().err
    run(tmp_path, "init")
    run(tmp_path, "issue", "localhost")
    capsys.readouterr()
    run(tmp_path, "show")
    shown = capsys.readouterr()
    lines = [line.split("\t") for line in shown.out.splitlines()]
    assert [line[0] for line in lines] == ["signs", "control"]
    assert lines[0][3] == fingerprint(files.read().certificates[0])
    assert lines[1][1] == "localhost"
    assert lines[1][2].endswith("(in 396 days)")
    run(tmp_path, "show", "--pem")
    assert capsys.readouterr().out.encode() == files.read().pem


def test_a_rotation_trusts_both_until_the_older_is_dropped(
    tmp_path: Path, files: AuthorityFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "init")
    run(tmp_path, "issue", "localhost")
    old = files.read()
    run(tmp_path, "rotate", "--drop-old", status=1)
    assert "there is no older authority to drop" in capsys.readouterr().err
    run(tmp_path, "rotate")
    both = files.read()
    assert both.certificates[1:] == old.certificates
    capsys.readouterr()
    run(tmp_path, "show")
    pinned = capsys.readouterr().err
    assert fingerprint(old.certificates[0]) in pinned, "control shows a certificate of it still"
    run(tmp_path, "rotate", "--drop-old", status=1)
    assert "issue it anew with `stoker ca issue`" in capsys.readouterr().err
    run(tmp_path, "issue", "localhost")
    run(tmp_path, "rotate", "--drop-old")
    assert files.read().certificates == both.certificates[:1]
    (server, behind) = x509.load_pem_x509_certificates(files.server.read_bytes())
    server.verify_directly_issued_by(behind)


@pytest.mark.parametrize(
    ("mode", "owner", "user", "exposed"),
    [
        (0o600, 10001, 10001, False),
        (0o640, 10001, 10001, True),
        (0o640, 0, 0, True),
        (0o440, 0, 10001, False),
        (0o460, 0, 10001, True),
        (0o444, 0, 10001, True),
        (0o440, 4711, 10001, True),
    ],
)
def test_a_group_may_read_what_root_gives_to_a_user(mode: int, owner: int, user: int, exposed: bool) -> None:
    found = os.stat_result((0o100000 | mode, 0, 0, 1, owner, 10001, 0, 0, 0, 0))
    assert is_exposed(found, user) is exposed


def test_a_key_that_others_read_and_a_damaged_one_are_refused(tmp_path: Path, files: AuthorityFiles) -> None:
    run(tmp_path, "init")
    files.key.chmod(0o640)
    with pytest.raises(TlsFilesUnusable, match="others may read it: chmod 600"):
        files.read()
    files.key.chmod(0o600)
    files.key.write_bytes(files.certificates.read_bytes())
    with pytest.raises(TlsFilesUnusable, match=r"ca.key holds no authority: it cannot be read as PEM"):
        files.read()
