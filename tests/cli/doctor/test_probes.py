"""The probes, each against something real that is small: folders as the kernel has them, files, servers."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.agent.node_certificate import NodeCertificate
from stoker.cli.control.authority_files import AuthorityFiles
from stoker.cli.doctor import probes
from stoker.cli.doctor.facts import Torch
from stoker.control.auth.authority import Authority
from stoker.wire.messages import CertificateAnswer
from tests.certificates import make_certificate
from tests.kept_port import kept_port


def test_nvidia_gpus_are_counted_on_the_bus(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("gpu", "0x10de", "0x030200"),
        ("sound", "0x10de", "0x040300"),
        ("other", "0x8086", "0x030000"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    (tmp_path / "gone").mkdir()
    assert probes.gpus(tmp_path).on_bus == 1


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("__version__ = '2.13.0+cu129'\ncuda: Optional[str] = '12.9'", Torch("2.13.0+cu129", (12, 9))),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None", Torch("2.13.0+cpu", None)),
        ("", Torch("of an unknown version", None)),
    ],
)
def test_torch_is_read_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, expected: Torch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError")
    (tmp_path / "torch" / "version.py").write_text(lines)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert probes.torch() == expected


def test_the_torch_that_is_here_has_the_version_of_its_metadata() -> None:
    found = probes.torch()
    assert found is not None
    assert found.version[0].isdecimal()


def test_a_folder_that_is_not_there_yet_is_on_the_disk_of_the_one_above(tmp_path: Path) -> None:
    found = probes.disk(tmp_path / "a" / "b", 1)
    assert found.folder == str(tmp_path / "a" / "b")
    assert found.total == probes.disk(tmp_path, 1).total


def test_certificates_are_read_with_their_dates_and_their_key(tmp_path: Path) -> None:
    files = make_certificate(tmp_path, timedelta(days=-1)).files
    certificate, key = probes.certificate(files.cert, files.key)
    assert certificate.ends_in_s is not None
    assert -90_000 < certificate.ends_in_s < -86_000
    assert (certificate.trouble, key.trouble) == ("", "")
    assert "is not PEM" in probes.certificate(files.key, None)[0].trouble
    assert "cannot be read" in probes.authority(tmp_path / "none.pem")[0].trouble
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other").files
    assert "does not fit" in probes.certificate(files.cert, other.key)[1].trouble


@given(st.floats(1.7e9, 1.8e9), st.floats(0, 5), st.integers(-1000, 1000), st.floats(0, 1))
def test_a_clock_is_told_no_further_off_than_the_header_shows(
    asked: float, took: float, off: int, part: float
) -> None:
    """The answer was made at some part of the time, and cut to a whole second."""
    date = formatdate(int(asked + took * part + off), usegmt=True)
    found = probes._ahead_s(date, asked, asked + took)
    assert found is not None
    assert abs(found) <= abs(off) + 0.001
    assert abs(found - off) <= took + 1.001
    assert probes._ahead_s(None, 0, 1) is None


def test_addresses_that_nobody_listens_at_say_so() -> None:
    with kept_port() as held:
        port = held.getsockname()[1]
        door = probes.door(f"127.0.0.1:{port}", None)
        assert (door.trouble, door.refused) == ("Connection refused", True)
        service = probes.service(f"http://127.0.0.1:{port}", None, None)
        assert "refused" in service.trouble
        assert service.refused
    assert probes.door("nowhere", None).trouble == "an address reads HOST:PORT"


def test_an_engine_that_is_not_there_says_where_was_looked() -> None:
    with kept_port() as held:
        address = f"tcp://127.0.0.1:{held.getsockname()[1]}"
        found = probes.engine({"DOCKER_HOST": address}, 0)
    assert found.name == ""
    assert f"{address} does not answer" in found.trouble


def test_certificates_of_the_data_folder_are_found(tmp_path: Path) -> None:
    assert probes.certificates_made_here(tmp_path) == ()
    made = AuthorityFiles(tmp_path / "ca")
    authority = Authority.make(time.time())
    made.write(authority)
    made.write_server(*authority.sign_server(["localhost"], time.time()))
    (tmp_path / "agent").mkdir()
    node = NodeCertificate(tmp_path / "agent", pinned=False)
    signed = authority.sign_node(node.request(), "n1", "c1", time.time(), 4 * 86_400.0)
    node.answered(CertificateAnswer(signed, authority.pem))
    found = probes.certificates_made_here(tmp_path)
    assert [(one.what, Path(one.path).name, one.trouble) for one in found] == [
        ("certificate of the node", "node_certificate", ""),
        ("TLS authority", "ca.pem", ""),
        ("TLS certificate", "control.pem", ""),
        ("TLS key", "control.key", ""),
    ]
    assert found[0].soon_s == pytest.approx(2 * 86_400.0, abs=400.0)
