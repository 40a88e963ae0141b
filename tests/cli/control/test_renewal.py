"""SIGHUP to a running control: what is read again, and what is said to need a restart."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from stoker.cli.control.renewal import Renewal
from stoker.control.config.config import load_config
from stoker.control.config.sections import Config
from stoker.control.config.tls import TlsFiles
from tests.certificates import make_certificate


class Door:
    def __init__(self) -> None:
        self.shown: list[bytes] = []

    def renew(self, tls: TlsFiles) -> None:
        self.shown.append(tls.cert.read_bytes())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    made = tmp_path / "stoker.toml"
    made.write_text("")
    return made


def renewal(config: Path, tls: TlsFiles | None) -> tuple[Renewal, Door]:
    certificate, authority = tls.certificates() if tls else (None, None)

    def read() -> tuple[Config, TlsFiles | None]:
        return load_config(config), tls

    made, door = Renewal(load_config(config), certificate, authority, read), Door()
    made.doors.append(door)
    return made, door


def test_a_renewed_certificate_is_shown_and_what_waits_for_a_restart_is_named(
    tmp_path: Path, config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    files = make_certificate(tmp_path).files
    made, door = renewal(config, files)
    pem = make_certificate(tmp_path).pem
    config.write_text("functions = true\n[retention]\nasync_s = 60\n")
    made.run()
    assert door.shown == [pem]
    assert made.certificate is not None
    assert made.certificate.pem == pem
    assert caplog.messages == [
        "SIGHUP: TLS files are applied to new connections; needs a restart: functions, retention"
    ]


@pytest.mark.parametrize("wrong", ["certificate", "configuration"])
def test_files_that_are_wrong_change_nothing(
    tmp_path: Path, config: Path, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    before = make_certificate(tmp_path)
    made, door = renewal(config, before.files)
    if wrong == "certificate":
        before.files.cert.write_text("half a cert")
    else:
        config.write_text("unknown = 1\n")
    made.run()
    assert door.shown == []
    assert made.certificate is not None
    assert made.certificate.pem == before.pem
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("SIGHUP: nothing was changed: ")


def test_a_context_keeps_its_pair_where_the_new_one_does_not_fit(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    good, other = make_certificate(first), make_certificate(second)
    context = good.files.context()
    with pytest.raises(Exception, match="does not fit"):
        TlsFiles(good.files.cert, other.files.key).load_into(context)
    assert isinstance(context, ssl.SSLContext)
