"""The certificates of nodes in the configuration: with which other settings they go together."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stoker.cli.control.agent_certificates import node_certificates
from stoker.cli.control.authority_files import AuthorityFiles
from stoker.cli.errors import CliError
from stoker.control.auth.authority import Authority
from stoker.control.config.sections import AgentCertificatesSection, Config
from stoker.control.config.tls import TlsFiles
from stoker.wire.tls_files import TlsFilesUnusable

REQUIRED = Config(agent_certificates=AgentCertificatesSection(mode="require", life_s=60))
TLS = TlsFiles(Path("control.pem"), Path("control.key"))


def test_without_the_section_there_are_none(tmp_path: Path) -> None:
    assert node_certificates(Config(), TLS, tmp_path) is None


def test_they_need_tls_and_exclude_another_authority(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="make a certificate with `stoker ca issue`"):
        node_certificates(REQUIRED, None, tmp_path)
    with pytest.raises(CliError, match="give one of the two"):
        node_certificates(REQUIRED, TlsFiles(TLS.cert, TLS.key, Path("agents.pem")), tmp_path)
    with pytest.raises(TlsFilesUnusable, match=r"there is no authority in .*: `stoker ca init`"):
        node_certificates(REQUIRED, TLS, tmp_path)


def test_a_reload_reads_the_authority_again_and_keeps_it_where_it_is_damaged(tmp_path: Path) -> None:
    files, old = AuthorityFiles(tmp_path), Authority.make(time.time())
    files.write(old)
    certificates = node_certificates(REQUIRED, TLS, tmp_path)
    assert certificates is not None
    assert certificates.required
    files.write(old.succeeded(time.time()))
    certificates.reload()
    assert len(certificates.authority.certificates) == 2
    files.key.write_text("nothing")
    with pytest.raises(TlsFilesUnusable, match="holds no authority"):
        certificates.reload()
    assert len(certificates.authority.certificates) == 2
