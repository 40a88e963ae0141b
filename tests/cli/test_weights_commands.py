"""`stoker weights`: makes, fetches from mirrors, verifies, locks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from stoker.cli.main import main
from stoker.cli.weights_commands import prepare
from stoker.models.weights import WeightsError, lock_path, read_lock


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("STOKER_"):
            monkeypatch.delenv(name)


def stoker(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["weights", *arguments])
    said = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.out + said.err


def test_the_small_weights_are_made_and_verified(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = stoker(capsys, "fetch", "flux-tiny", "--dir", "w")
    assert code == 0, said
    assert "complete and verified in" in said
    assert stoker(capsys, "verify", "--dir", "w")[0] == 0
    changed = Path("w/flux-tiny/vae/config.json")
    changed.write_bytes(changed.read_bytes().replace(b"{", b" ", 1))
    code, said = stoker(capsys, "verify", "flux-tiny", "--dir", "w")
    assert code == 1
    assert "vae/config.json" in said


def test_nothing_to_verify_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = stoker(capsys, "verify", "--dir", "w")
    assert code == 1
    assert "there are no weights in w" in said


def test_an_unknown_name_is_told_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = stoker(capsys, "fetch", "flux-9", "--dir", "w")
    assert code == 1
    assert "flux-tiny" in said


@pytest.mark.parametrize(
    ("mirror", "sentence"), [("nowhere", "is no folder"), ("s3://bucket/models", "name its object store")]
)
def test_a_mirror_that_cannot_be_used(capsys: pytest.CaptureFixture[str], mirror: str, sentence: str) -> None:
    code, said = stoker(capsys, "fetch", "flux-1-dev", "--dir", "w", "--mirror", mirror)
    assert code == 1
    assert sentence in said


def test_a_licence_is_told_with_its_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    _, said = stoker(capsys, "fetch", "flux-1-dev", "--dir", "w", "--mirror", "empty")
    assert read_lock().entry("flux-1-dev").licence in " ".join(said.split())
    assert "[dev]" in said


def test_an_entry_is_locked_from_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    stoker(capsys, "fetch", "flux-tiny", "--dir", "w")
    shutil.copyfile(lock_path(), "mine.lock")
    Path("w/flux-tiny/vae/config.json").write_text('{"changed": true}')
    code, said = stoker(capsys, "lock", "flux-tiny", "--from", "w/flux-tiny", "--lock", "mine.lock")
    assert code == 0, said
    sizes = {file.path: file.size for file in read_lock(Path("mine.lock")).entry("flux-tiny").files}
    assert sizes["vae/config.json"] == len('{"changed": true}')


def test_up_makes_small_weights_and_downloads_nothing_unasked(tmp_path: Path) -> None:
    prepare(["flux-tiny"], tmp_path / "w")
    assert (tmp_path / "w" / "flux-tiny" / "model_index.json").exists()
    with pytest.raises(WeightsError, match="flux-1-dev"):
        prepare(["flux-1-dev"], tmp_path / "w")
