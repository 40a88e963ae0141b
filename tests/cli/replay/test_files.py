"""The files of a case: had by their sha256, or with the reason why not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from stoker.cli.errors import CliError
from stoker.cli.replay.files import find_files

BODY = b"a voice"
WANTED = {"url": "https://files.example/voice.wav", "size": 7, "sha256": hashlib.sha256(BODY).hexdigest()}


def test_a_given_file_is_found_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"another")
    (tmp_path / "x").write_bytes(BODY)
    (found,) = find_files([WANTED], [tmp_path / "other", tmp_path / "x"], tmp_path, fetch=False)
    assert (found.url, found.path, found.missing) == (WANTED["url"], str(tmp_path / "x"), "")


def test_without_fetch_nothing_is_fetched(tmp_path: Path) -> None:
    (found,) = find_files([WANTED], [], tmp_path, fetch=False)
    assert not found.path
    assert "no --file has its sha256" in found.missing


def test_a_path_of_the_node_is_not_opened_here(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(BODY)
    for url in (str(tmp_path / "x"), f"file://{tmp_path / 'x'}"):
        (found,) = find_files([{**WANTED, "url": url}], [], tmp_path, fetch=True)
        assert found.missing == "only http and https are fetched again"


def test_a_given_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"--file .* cannot be read"):
        find_files([WANTED], [tmp_path / "gone"], tmp_path, fetch=False)
