"""`stoker weights`: makes, fetches from mirrors, verifies, locks."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from stoker.cli.main import main
from stoker.cli.up.weights import prepare
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
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out + printed.err


def test_the_small_weights_are_made_and_verified(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = stoker(capsys, "fetch", "flux-tiny", "--dir", "w")
    assert code == 0, printed
    assert "complete and verified in" in printed
    assert stoker(capsys, "verify", "--dir", "w")[0] == 0
    changed = Path("w/flux-tiny/vae/config.json")
    changed.write_bytes(changed.read_bytes().replace(b"{", b" ", 1))
    code, printed = stoker(capsys, "verify", "flux-tiny", "--dir", "w")
    assert code == 1
    assert "vae/config.json" in printed


def test_nothing_to_verify_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = stoker(capsys, "verify", "--dir", "w")
    assert code == 1
    assert "there are no weights in w" in printed


def test_an_unknown_name_is_reported_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = stoker(capsys, "fetch", "flux-9", "--dir", "w")
    assert code == 1
    assert "flux-tiny" in printed


@pytest.mark.parametrize(
    ("mirror", "message"), [("nowhere", "is not a folder"), ("s3://bucket/models", "name its object store")]
)
def test_a_mirror_that_cannot_be_used(capsys: pytest.CaptureFixture[str], mirror: str, message: str) -> None:
    code, printed = stoker(capsys, "fetch", "flux-1-dev", "--dir", "w", "--mirror", mirror)
    assert code == 1
    assert message in printed


def test_a_licence_is_reported_with_its_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    _, printed = stoker(capsys, "fetch", "flux-1-dev", "--dir", "w", "--mirror", "empty")
    assert read_lock().entry("flux-1-dev").licence in " ".join(printed.split())
    assert "[dev]" in printed


def test_an_entry_is_locked_from_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    stoker(capsys, "fetch", "flux-tiny", "--dir", "w")
    shutil.copyfile(lock_path(), "mine.lock")
    Path("w/flux-tiny/vae/config.json").write_text('{"changed": true}')
    code, printed = stoker(capsys, "lock", "flux-tiny", "--from", "w/flux-tiny", "--lock", "mine.lock")
    assert code == 0, printed
    sizes = {file.path: file.size for file in read_lock(Path("mine.lock")).entry("flux-tiny").files}
    assert sizes["vae/config.json"] == len('{"changed": true}')


def test_up_makes_small_weights_and_downloads_nothing(tmp_path: Path) -> None:
    prepare({"flux-tiny": None}, tmp_path / "w")
    assert (tmp_path / "w" / "flux-tiny" / "model_index.json").exists()
    with pytest.raises(WeightsError, match="flux-1-dev"):
        prepare({"flux-1-dev": None}, tmp_path / "w")


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    code, printed = stoker(capsys, "list", "--dir", "w")
    assert code == 0
    rows = [line.split("\t") for line in printed.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_what_is_locked_here_and_verified_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    licence = read_lock().entry("flux-tiny").licence
    none = listed(capsys)
    assert none["flux-tiny"][:3] == ["yes", "no", "no"]
    assert none["flux-tiny"][4] == licence
    assert none["flux-1-schnell"][:3] == ["yes", "no", "no"]
    assert "GB" in none["flux-1-schnell"][3]
    unknown = read_lock().entry("flux-1-dev")
    assert none["flux-1-dev"][0] == (
        f"{len(unknown.files) - len(unknown.unknown)} of {len(unknown.files)} files"
    )
    stoker(capsys, "fetch", "flux-tiny", "--dir", "w")
    assert listed(capsys)["flux-tiny"][:3] == ["yes", "yes", "yes"]
    code, printed = stoker(capsys, "list", "--dir", "w", "--json")
    listed_all = json.loads(printed)
    (tiny,) = [one for one in listed_all if one["name"] == "flux-tiny"]
    assert tiny["size"] == read_lock().entry("flux-tiny").size, "a number, in bytes"
    assert {type(one["size"]) for one in listed_all} == {int, type(None)}
    assert (code, tiny["locked"], tiny["fetched"], tiny["verified"]) == (0, True, True, True)


def test_what_was_changed_since_is_listed_as_not_verified(capsys: pytest.CaptureFixture[str]) -> None:
    stoker(capsys, "fetch", "flux-tiny", "--dir", "w")
    changed = Path("w/flux-tiny/vae/config.json")
    changed.write_bytes(changed.read_bytes().replace(b"{", b" ", 1))
    assert listed(capsys)["flux-tiny"][2] == "not yet: stoker weights verify flux-tiny"
    stoker(capsys, "verify", "flux-tiny", "--dir", "w")
    assert listed(capsys)["flux-tiny"][2].startswith("no: vae/config.json: its sha256 is")
    changed.unlink()
    assert listed(capsys)["flux-tiny"][2] == "no: vae/config.json: is missing"


def test_a_lock_of_ones_own_needs_no_repository(capsys: pytest.CaptureFixture[str]) -> None:
    """Written from a folder, read by the other commands, and written again from the same folder."""
    stoker(capsys, "fetch", "flux-tiny", "--dir", "w")
    Path("w/flux-tiny").rename("w/ours")
    own = ("--lock", "our.lock")
    code, printed = stoker(capsys, "lock", "ours", "--from", "w/ours", *own, "--licence", "MIT")
    assert (code, "locked ours: 15 files" in printed) == (0, True), printed
    assert stoker(capsys, "verify", "ours", "--dir", "w", *own)[0] == 0
    assert "MIT" in stoker(capsys, "list", "--dir", "w", *own)[1]
    Path("w/ours/more.txt").write_text("more")
    code, printed = stoker(capsys, "verify", "ours", "--dir", "w", *own)
    assert (code, "more.txt: is not in our.lock" in printed) == (1, True), printed
    assert "16 files" in stoker(capsys, "lock", "ours", "--from", "w/ours", *own)[1]
    assert read_lock(Path("our.lock")).entry("ours").licence == "MIT"
    assert stoker(capsys, "lock", "ours 3.5", "--from", "w/ours", *own)[0] == 0
    assert [entry.name for entry in read_lock(Path("our.lock")).entries] == ["ours", "ours 3.5"]


def test_what_was_locked_from_a_folder_is_fetched_from_a_mirror(capsys: pytest.CaptureFixture[str]) -> None:
    stoker(capsys, "fetch", "flux-tiny", "--dir", "w")
    Path("w/flux-tiny").rename("w/ours")
    stoker(capsys, "lock", "ours", "--from", "w/ours", "--lock", "our.lock")
    code, printed = stoker(capsys, "verify", "ours", "--dir", "x", "--lock", "our.lock")
    command = "stoker weights fetch ours --lock our.lock --mirror FOLDER"
    assert (code, command in " ".join(printed.split())) == (1, True), printed
    code, printed = stoker(capsys, "fetch", "ours", "--dir", "x", "--lock", "our.lock")
    assert (code, "give the folder that holds the folder ours with --mirror" in printed) == (1, True), printed
    code, printed = stoker(capsys, "fetch", "ours", "--dir", "x", "--lock", "our.lock", "--mirror", "w")
    assert code == 0, printed
    assert Path("x/ours/model_index.json").is_file()


def test_a_lock_that_is_not_there_is_named_with_the_ways_to_make_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, printed = stoker(capsys, "lock", "flux-1-dev", "--lock", "our.lock")
    told = " ".join(printed.split())
    assert (code, "there is no lock our.lock: --from FOLDER makes one" in told) == (1, True), printed
    assert "name that in STOKER_WEIGHTS_LOCK" in told
    code, printed = stoker(capsys, "verify", "flux-1-dev", "--lock", "our.lock")
    assert (code, "cannot read our.lock: No such file or directory" in printed) == (1, True), printed


def test_stokers_own_lock_gets_no_entry_by_a_wrong_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    code, printed = stoker(capsys, "lock", "flux-9", "--from", "empty")
    assert (code, "weights.lock has no entry 'flux-9'" in printed) == (1, True), printed


def test_a_damaged_part_of_a_file_is_fetched_again_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As an agent fetches it again: one function brings files for both."""
    stoker(capsys, "fetch", "flux-tiny", "--dir", "mirror")
    Path("mirror/flux-tiny").rename("mirror/ours")
    own = ("--lock", "our.lock")
    stoker(capsys, "lock", "ours", "--from", "mirror/ours", *own)
    part = Path("w/.ours.part/vae/config.json")
    part.parent.mkdir(parents=True)
    part.write_text("wrong")
    code, printed = stoker(capsys, "fetch", "ours", "--dir", "w", "--mirror", "mirror", *own)
    assert (code, Path("w/ours/vae/config.json").read_bytes()) == (
        0,
        Path("mirror/ours/vae/config.json").read_bytes(),
    ), printed
