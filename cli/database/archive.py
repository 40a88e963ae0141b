"""A backup as a file: a tar archive of its manifest, the snapshot, and the key to its secrets if it has that.

The manifest is the first of them and has the digests of the others: `tar -xOf FILE manifest.json` shows it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from stoker.cli.errors import CliError

FORMAT = 1
MANIFEST, SNAPSHOT, KEY = "manifest.json", "stoker.db", "secret.key"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a backup. `taken_at`: the moment of the snapshot, in UTC. `rows` are counts by table,
    `objects` how often rows name an object, which the backup lacks. `digests`: SHA-256 of each file."""

    stoker: str
    schema: int
    taken_at: str
    database: str
    rows: Mapping[str, int]
    objects: int
    digests: Mapping[str, str]
    format: int = FORMAT

    @property
    def has_key(self) -> bool:
        return KEY in self.digests


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pack(manifest: Manifest, folder: Path, file: Path) -> None:
    """Writes the archive of these files of `folder`: whole, or not at all, and its owner's only. Raises
    CliError where there is such a file."""
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            _write(manifest, folder, out)
            out.flush()
            os.fsync(out.fileno())
        os.link(part, file)
    except FileExistsError:
        raise CliError(f"{file} exists already: give the backup another name") from None
    except OSError as error:
        raise CliError(f"the backup cannot be written to {file}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _write(manifest: Manifest, folder: Path, out: IO[bytes]) -> None:
    text = json.dumps(asdict(manifest), indent=1).encode() + b"\n"
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo(MANIFEST)
        member.size, member.mode = len(text), 0o600
        tar.addfile(member, io.BytesIO(text))
        for name in manifest.digests:
            member = tarfile.TarInfo(name)
            member.size, member.mode = (folder / name).stat().st_size, 0o600
            with (folder / name).open("rb") as content:
                tar.addfile(member, content)


def unpack(file: Path, folder: Path) -> Manifest:
    """Writes the snapshot and the key into `folder`, with mode 0600. Raises CliError where the file is no
    backup, is of a later Stoker, or has another digest than it says."""
    try:
        with tarfile.open(file, mode="r:") as tar:
            manifest = _manifest(file, _member(tar, MANIFEST).read())
            for name in manifest.digests:
                _copy(_member(tar, name), folder / name)
    except (tarfile.TarError, EOFError, KeyError) as error:
        raise CliError(f"{file} is not a backup, or only a part of one: {error}") from None
    except OSError as error:
        raise CliError(f"the backup {file} cannot be unpacked: {error.strerror}") from None
    for name, wanted in manifest.digests.items():
        if digest(folder / name) != wanted:
            raise CliError(f"{file} was damaged: its {name} does not have the digest that its manifest names")
    return manifest


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    content = tar.extractfile(tar.getmember(name))
    if content is None:
        raise KeyError(f"{name} is not a file")
    return content


def _manifest(file: Path, text: bytes) -> Manifest:
    try:
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise CliError(f"{file} has format {found['format']} of backups, and this Stoker reads {FORMAT}")
        manifest = Manifest(**found)
    except (ValueError, TypeError, KeyError):
        raise CliError(f"{file} has a manifest that cannot be read") from None
    if not {SNAPSHOT} <= set(manifest.digests) <= {SNAPSHOT, KEY}:
        raise CliError(f"{file} has a manifest that does not name {SNAPSHOT}, or names other files")
    return manifest


def _copy(content: IO[bytes], path: Path) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        while piece := content.read(1 << 20):
            out.write(piece)
