"""Which folder of the node a volume is."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.agent.seams import SpawnFailed
from stoker.agent.volumes import folder


def test_it_is_made_once_and_kept(tmp_path: Path) -> None:
    path = folder(tmp_path, "weights-1")
    assert path == tmp_path / "weights-1"
    assert path.stat().st_mode & 0o777 == 0o770
    (path / "kept").touch()
    assert (folder(tmp_path, "weights-1") / "kept").exists()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../etc", "a/b", "/etc", ".hidden", "a\0b", "x" * 129, "a\n"]
)
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpawnFailed, match="cannot name a volume"):
        folder(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to("/etc")
    (tmp_path / "nowhere").symlink_to("/nowhere/at/all")
    for name in ("away", "nowhere"):
        with pytest.raises(SpawnFailed, match="is no folder"):
            folder(tmp_path, name)


def test_no_root_and_a_root_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(SpawnFailed, match="has no volume root"):
        folder(None, "weights")
    with pytest.raises(SpawnFailed, match="No such file or directory"):
        folder(tmp_path / "gone", "weights")
