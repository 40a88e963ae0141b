"""Handlers' source: what counts, what is left out, and that it arrives as it was."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wire import source_archive
from stoker.wire.source_archive import SourceFile, SourceUnusable, digest, pack, read, unpack

NAMES = st.from_regex(r"[a-zé ]{1,5}\.?[a-z]{0,3}", fullmatch=True).filter(source_archive._counts)
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.tuples(st.binary(max_size=40), st.booleans())
).map(
    lambda found: [
        SourceFile(path, *found[path])
        for path in sorted(found)
        if not any(other.startswith(f"{path}/") for other in found)  # no file and folder of one name
    ]
)


@given(FILES)
def test_what_is_packed_is_unpacked_and_read_again(files: list[SourceFile]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as above:
        folder = Path(above, "made")
        unpack(pack(files), digest(files), folder)
        assert sorted(read(folder), key=lambda file: file.path) == files
        assert digest(read(folder)) == digest(sorted(files, key=lambda file: Path(file.path)))
        assert all(path.stat().st_mode & 0o444 == 0o444 for path in folder.rglob("*"))


@given(FILES, FILES)
def test_other_files_have_another_digest(files: list[SourceFile], others: list[SourceFile]) -> None:
    assert (digest(files) == digest(others)) == (files == others)


def test_secrets_caches_and_links_that_lead_out_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "handlers"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / ".venv").mkdir()
    (folder / "prompts").mkdir()
    for name in (
        "a.py",
        "prompts/one.txt",
        "stoker.toml",
        "other.toml",
        "tls.pem",
        ".env",
        "__pycache__/a.pyc",
        ".venv/b.py",
    ):
        (folder / name).write_text(name)
    (tmp_path / "secret").write_text("out of it")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "in.txt").symlink_to("prompts/one.txt")
    (folder / "nothing").symlink_to("nowhere")
    (folder / "itself").symlink_to("itself")
    os.mkfifo(folder / "pipe")
    found = read(folder, without={folder / "other.toml"})
    assert [file.path for file in found] == ["a.py", "in.txt", "prompts/one.txt"]
    assert found[1].content == b"prompts/one.txt"


def test_what_is_too_large_is_refused_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x")
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(source_archive.BYTES_MAX)
    with pytest.raises(SourceUnusable, match=r"has over 8 MiB of files, model\.safetensors among them"):
        read(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    monkeypatch.setattr(source_archive, "FILES_MAX", 1)
    (tmp_path / "b.py").write_text("x")
    with pytest.raises(SourceUnusable, match="has over 1 files"):
        read(tmp_path)


def _tar(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type = kind
        tar.addfile(member)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (b"no archive", "the archive cannot be read"),
        (_tar("../up"), r"'\.\./up', which is not a file below"),
        (_tar("/abs"), "which is not a file below"),
        (_tar("link", tarfile.SYMTYPE), "'link', which is not a file below"),
        (_tar("a.py"), "another digest"),
    ],
)
def test_an_archive_that_is_not_what_was_wanted_writes_nothing(
    tmp_path: Path, archive: bytes, why: str
) -> None:
    with pytest.raises(SourceUnusable, match=why):
        unpack(archive, "0" * 64, tmp_path / "made")
    assert not (tmp_path / "made").exists()
