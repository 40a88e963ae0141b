"""Where a node takes the source of a handler from: its own folder, a copy that it keeps, or control."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stoker.agent.host.storage import source_folders
from stoker.agent.host.storage.source_folders import SourceFolders
from stoker.wire.messages import Source
from stoker.wire.source_archive import SourceFile, SourceUnusable, digest, pack, read


class Control:
    """Packs one version after the other, and counts how often it was asked."""

    def __init__(self) -> None:
        self.archives: dict[str, bytes] = {}
        self.asked: list[str] = []

    def source(self, folder: Path, text: str) -> Source:
        files = (SourceFile("echo.py", text.encode(), executable=False),)
        self.archives[digest(files)] = pack(files)
        return Source(str(folder), digest(files))

    async def fetch(self, wanted: str) -> bytes:
        self.asked.append(wanted)
        await asyncio.sleep(0)
        if wanted not in self.archives:
            raise SourceUnusable("no worker of node n has it")
        return self.archives[wanted]


async def test_a_folder_with_the_same_files_is_taken_and_another_is_not(tmp_path: Path) -> None:
    control, here = Control(), tmp_path / "handlers"
    here.mkdir()
    (here / "echo.py").write_text("1")
    folders = SourceFolders(tmp_path / "sources")
    assert await folders.find("w1", control.source(here, "1"), control.fetch) == here
    assert control.asked == []
    newer = control.source(here, "2")
    found = await folders.find("w1", newer, control.fetch)
    assert found == tmp_path / "sources" / newer.digest
    assert read(found)[0].content == b"2"


async def test_a_copy_is_fetched_once_and_outlives_its_agent(tmp_path: Path) -> None:
    control = Control()
    source = control.source(tmp_path / "nowhere", "1")
    folders = SourceFolders(tmp_path / "sources")
    first, second = await asyncio.gather(
        *(folders.find(name, source, control.fetch) for name in ("w1", "w2"))
    )
    again = await SourceFolders(tmp_path / "sources").find("w1", source, control.fetch)
    assert first == second == again
    assert control.asked == [source.digest]


async def test_a_damaged_copy_of_an_earlier_agent_is_fetched_anew(tmp_path: Path) -> None:
    control = Control()
    source = control.source(tmp_path / "nowhere", "1")
    copy = await SourceFolders(tmp_path / "sources").find("w", source, control.fetch)
    (copy / "echo.py").write_bytes(b"")  # as after a loss of power
    later = SourceFolders(tmp_path / "sources")
    assert await later.find("w1", source, control.fetch) == copy
    assert read(copy)[0].content == b"1"
    (copy / "result.txt").write_text("of a handler that writes beside itself")
    assert await later.find("w2", source, control.fetch) == copy
    assert control.asked == [source.digest] * 2, "compared once: its workers may be using it"


async def test_copies_that_no_worker_uses_are_removed_the_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_folders, "KEPT", 1)
    control, folders = Control(), SourceFolders(tmp_path / "sources")
    sources = [control.source(tmp_path / "nowhere", str(n)) for n in range(4)]
    await folders.find("stays", sources[0], control.fetch)
    for source in sources[1:]:
        await folders.find("w", source, control.fetch)
        folders.release("w")
    kept = {path.name for path in (tmp_path / "sources").iterdir()}
    assert kept == {sources[0].digest, sources[2].digest, sources[3].digest}, "the last, one more, one in use"


async def test_what_cannot_be_had_is_a_sentence(tmp_path: Path) -> None:
    control, folders = Control(), SourceFolders(tmp_path / "sources")
    with pytest.raises(SourceUnusable, match="no worker of node n has it"):
        await folders.find("w", Source("/nowhere", "a" * 64), control.fetch)
    why = r"/nowhere is not on this node, and control does not send it: /nowhere has over 8 MiB of files"
    with pytest.raises(SourceUnusable, match=why):
        await folders.find("w", Source("/nowhere", "", "/nowhere has over 8 MiB of files"), control.fetch)
    here = Source(str(tmp_path), "", "it is too large")
    assert await folders.find("w", here, control.fetch) == tmp_path, "as the operator put it there"
    (tmp_path / "sources").write_text("no folder")
    with pytest.raises(SourceUnusable, match="cannot be written"):
        await folders.find("w", control.source(tmp_path / "nowhere", "1"), control.fetch)
