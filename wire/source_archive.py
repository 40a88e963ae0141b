"""The source of a handler as one archive: the files in and below its folder, named by their digest.

    folder ──read──> files ──digest──> the same on every host, whatever its clock, owners and caches
                           ──pack────> archive ──unpack──> a new folder of the same digest

Left out are names that begin with a dot, compiled Python, keys (`*.pem`, `*.key`), databases and stoker.toml,
which may hold secrets. A link counts as the file that it leads to, if that is below the folder, too.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:  # it comes with the first archive
    import tarfile

FILES_MAX = 2_000
BYTES_MAX = 8 << 20
"""Of all files together: what is larger belongs into weights, a volume or an image."""

LEFT_OUT = ("__pycache__", "stoker.toml")
SUFFIXES_LEFT_OUT = (".pyc", ".pem", ".key", ".db", ".sqlite3")


class SourceUnusable(Exception):
    """A folder or an archive that cannot be taken; the message says why, as the end of a sentence."""


class SourceFile(Struct, frozen=True):
    """A file; `path` is relative to the folder, with slashes."""

    path: str
    content: bytes
    executable: bool


def read(folder: Path, without: Collection[Path] = ()) -> tuple[SourceFile, ...]:
    """Returns the files, ordered by path. `without` are files that are left out, too. Raises
    SourceUnusable."""
    found: list[SourceFile] = []
    left = BYTES_MAX
    try:
        for path in sorted(_paths(folder)):
            if (file := _read(folder, path, without, left)) is None:
                continue
            found.append(file)
            left -= len(file.content)
            if len(found) > FILES_MAX:
                raise SourceUnusable(f"{folder} has over {FILES_MAX} files")
    except OSError as error:
        raise SourceUnusable(f"{error.filename} cannot be read: {error.strerror}") from None
    return tuple(found)


def _paths(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _counts(name)]
        yield from (Path(where, name) for name in names if _counts(name))


def _counts(name: str) -> bool:
    return not name.startswith(".") and name not in LEFT_OUT and not name.endswith(SUFFIXES_LEFT_OUT)


def _read(folder: Path, path: Path, without: Collection[Path], left: int) -> SourceFile | None:
    """Returns None for what is not a file of this folder. Raises SourceUnusable, OSError."""
    try:
        target = path.resolve()
        found = target.stat()
    except (FileNotFoundError, RuntimeError):  # removed meanwhile, or a link to nothing or to itself
        return None
    if not stat.S_ISREG(found.st_mode) or not target.is_relative_to(folder.resolve()) or target in without:
        return None
    if found.st_size > left:
        raise SourceUnusable(f"{folder} has over {BYTES_MAX >> 20} MiB of files, {path.name} among them")
    name = path.relative_to(folder).as_posix()
    return SourceFile(name, target.read_bytes(), bool(found.st_mode & stat.S_IXUSR))


def digest(files: Sequence[SourceFile]) -> str:
    sha = hashlib.sha256()
    for file in files:
        name = file.path.encode(errors="surrogateescape")
        sha.update(b"%d %d %d\n" % (len(name), file.executable, len(file.content)))
        sha.update(name)
        sha.update(file.content)
    return sha.hexdigest()


def pack(files: Sequence[SourceFile]) -> bytes:
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for file in files:
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(file.content), 0o755 if file.executable else 0o644
            tar.addfile(member, io.BytesIO(file.content))
    return packed.getvalue()


def unpack(archive: bytes, wanted: str, folder: Path) -> None:
    """Writes the files below `folder`, which is new, if they have the digest `wanted`. Everybody may read
    them. Raises SourceUnusable."""
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            files = tuple(_unpacked(tar, member) for member in tar)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SourceUnusable(f"the archive cannot be read: {error}") from None
    if digest(files) != wanted:
        raise SourceUnusable("the archive has another digest than it was said to have")
    try:
        _write(files, folder)
    except OSError as error:
        raise SourceUnusable(f"{error.filename} cannot be written: {error.strerror}") from None


def _unpacked(tar: tarfile.TarFile, member: tarfile.TarInfo) -> SourceFile:
    path = PurePosixPath(member.name)
    content = tar.extractfile(member) if member.isreg() else None
    if content is None or path.is_absolute() or ".." in path.parts:
        raise SourceUnusable(f"the archive has {member.name!r:.100}, which is not a file below its folder")
    return SourceFile(member.name, content.read(), bool(member.mode & stat.S_IXUSR))


def _write(files: Sequence[SourceFile], folder: Path) -> None:
    _make(folder)
    for file in files:
        path = folder / file.path
        for above in reversed(path.relative_to(folder).parents[:-1]):
            _make(folder / above)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.executable else 0o644)


def _make(folder: Path) -> None:
    """Makes a folder that other users may read, whatever the umask is."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
