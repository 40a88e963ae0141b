"""weights.lock: the files of each model, their sources and their digests.

TOML with one file a line, so that diffs are readable. A digest may be "unknown"; the weights of such an entry
are not loaded until `stoker weights lock` has filled it in.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any, Final

from stoker.models.weights_paths import LOCK

ENTRIES = "STOKER_WEIGHTS_ENTRIES"
"""Entries as a lock's text."""

UNKNOWN: Final = "unknown"
BUILT: Final = "built:"
HUB: Final = "huggingface:"
FOLDER: Final = "folder"
"""The source of weights that were locked from a folder of the operator's and are in no repository."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
"""A key that TOML takes without quotation marks."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
NAME_MAX: Final = 255
SIZE_MAX: Final = 2**63 - 1

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}")
"""The name of an entry: it is the name of a folder, too."""

VERSION = 1
_HEADER = """\
# The weights that Stoker may load: every file with its size and sha256. Anything else is refused.
# Made and filled by `stoker weights lock`; source is a repository of the Hugging Face hub at a commit,
# or a function of this package that makes the files. Of a hub's repository only the files named here are
# locked and fetched; `stoker weights lock NAME --from FOLDER` with `files = []` takes all of a folder.
# A file with a source of its own comes from that repository, where it is called `name`.
"""


class WeightsError(Exception):
    """The error that weights cannot be used or fetched; the message says which file, and why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of one file: its name in a repository of the hub, at a commit. Until the file is locked,
    `commit` may be a branch, or None for the newest commit."""

    source: str
    name: str
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class LockedFile:
    """A locked file. `size` and `sha256` are None while they are unknown. `origin` is None if the file has
    the same name in the entry's source."""

    path: str
    size: int | None = None
    sha256: str | None = None
    origin: Origin | None = None

    @property
    def is_known(self) -> bool:
        return self.size is not None and self.sha256 is not None


@dataclass(frozen=True, slots=True)
class Entry:
    """The weights of one model. `lock`: the file that the entry was read from, unless that is this
    installation's."""

    name: str
    source: str
    licence: str
    files: tuple[LockedFile, ...]
    commit: str | None = None
    lock: Path | None = field(default=None, compare=False)

    @property
    def is_built(self) -> bool:
        return self.source.startswith(BUILT)

    @property
    def named(self) -> str:
        """The entry as an argument of `stoker weights`: its name, and the lock file unless that is this
        installation's."""
        return self.name if self.lock is None else f"{self.name} --lock {self.lock}"

    def origin_of(self, file: LockedFile) -> Origin:
        return file.origin or Origin(self.source, file.path, self.commit)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The files without a digest."""
        return tuple(file.path for file in self.files if not file.is_known)

    @property
    def size(self) -> int | None:
        """The bytes of all files; None while one is unknown."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

    @property
    def digest(self) -> str:
        """Returns one digest for all files: that of the lines `<sha256>  <path>`, sorted by path."""
        lines = (f"{file.sha256 or UNKNOWN}  {file.path}\n" for file in sorted(self.files, key=_by_path))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def key(self) -> str:
        """The entry's name and a digest of its files: the name of its folder where an agent fetched it."""
        return f"{self.name}@{self.digest[:16]}"


class Lock:
    """All entries, by name. Immutable: `with_entry` returns a new lock."""

    def __init__(self, entries: Iterable[Entry], name: str = "weights.lock") -> None:
        """Keeps the name of the file for messages."""
        self._entries, self.name = {entry.name: entry for entry in entries}, name

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    def entry(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            names = ", ".join(self._entries) or "none"
            raise WeightsError(f"{self.name} has no entry {name!r}; it has {names}") from None

    def with_entry(self, entry: Entry) -> Lock:
        return self.with_entries((entry,))

    def with_entries(self, entries: Iterable[Entry]) -> Lock:
        """Returns a lock with these entries in the place of those of the same names."""
        return Lock((self._entries | {entry.name: entry for entry in entries}).values(), self.name)


def lock_path() -> Path:
    """Returns the path of the lock: STOKER_WEIGHTS_LOCK, or else this installation's."""
    return Path(os.environ.get(LOCK) or _installed())


def _installed() -> Path:
    return Path(str(resources.files("stoker") / "weights.lock"))


def read_lock(path: Path | None = None) -> Lock:
    """Returns the lock at `path`. Without one, the entries of this installation, those of STOKER_WEIGHTS_LOCK
    in their place, and in place of both those of STOKER_WEIGHTS_ENTRIES, which control fills in for workers.
    Raises WeightsError if a lock is missing or invalid."""
    if path is not None:
        return _read(path, path)
    found, chosen = _read(_installed()), lock_path()
    if chosen != _installed() and chosen.exists():
        found = found.with_entries(_read(chosen).entries)
    if text := os.environ.get(ENTRIES):
        found = found.with_entries(_parsed(text, ENTRIES).entries)
    return found


def _read(path: Path, own: Path | None = None) -> Lock:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise WeightsError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise WeightsError(f"cannot read {path.name}: {error}") from error
    return _parsed(text, path.name, own)


@functools.lru_cache(maxsize=4)
def _parsed(text: str, name: str, own: Path | None = None) -> Lock:
    """Parses a text once: a process that starts reads the installation's lock several times."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: no TOML, or a vast number
        raise WeightsError(f"cannot read {name}: {error}") from error
    if data.get("version") != VERSION:
        raise WeightsError(
            f"{name} has version {data.get('version')!r}; this installation reads version {VERSION}"
        )
    try:
        return Lock((_entry(entry, table, own) for entry, table in data.get("models", {}).items()), name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WeightsError(f"{name} is damaged: {type(error).__name__}: {error}") from error


def write_lock(lock: Lock, path: Path) -> None:
    """Replaces the lock atomically. A symbolic link is followed, and stays one."""
    path = path.resolve()
    with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as file:
        try:
            file.write(dump_lock(lock))
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def dump_lock(lock: Lock) -> str:
    return "\n".join([f"{_HEADER}version = {VERSION}\n", *(_table(entry) for entry in lock.entries)])


def _entry(name: str, table: Mapping[str, Any], lock: Path | None) -> Entry:
    source = _printable("source", str(table["source"]))
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name: letters, digits, ' ', '.', '_' and '-', at most 128")
    if source != FOLDER and not source.startswith((BUILT, HUB)):
        raise ValueError(f"{name}: source {source!r} is neither {BUILT}… nor {HUB}… nor {FOLDER}")
    commit = _printable("commit", str(table.get("commit", UNKNOWN)))
    return Entry(
        name=name,
        source=source,
        licence=_printable("licence", str(table["licence"])),
        files=tuple(_file(row) for row in table["files"]),
        commit=None if commit == UNKNOWN else commit,
        lock=lock,
    )


def _file(row: Mapping[str, Any]) -> LockedFile:
    path, sha256 = _relative(row["path"]), str(row["sha256"])
    origin = _origin(path, row) if "source" in row else None
    if sha256 == UNKNOWN:
        return LockedFile(path, _size(path, row["size"]) if "size" in row else None, origin=origin)
    if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise ValueError(f"{path}: {sha256!r} is not a sha256")
    return LockedFile(path, _size(path, row["size"]), sha256, origin)


def _size(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SIZE_MAX:
        raise ValueError(f"{path}: size {value!r} is not a whole number of bytes from 0 to {SIZE_MAX}")
    return value


def _printable(field: str, text: str) -> str:
    """Returns the text, which names a file or a repository and is shown in terminals."""
    if _CONTROL.search(text):
        raise ValueError(f"{field} {text!r:.200} has a control character; none is allowed")
    return text


def _relative(value: object) -> str:
    path = str(value)
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or PurePosixPath(path).as_posix() != path:
        raise ValueError(f"{path!r} is not a path below the model's folder")
    _printable("path", path)
    if any(len(part.encode()) > NAME_MAX for part in parts):
        raise ValueError(f"{path!r:.100} has a name of over {NAME_MAX} bytes, which no file may have")
    return path


def _origin(path: str, row: Mapping[str, Any]) -> Origin:
    source = _printable("source", str(row["source"]))
    commit = _printable("commit", str(row.get("commit", UNKNOWN)))
    if not source.startswith(HUB):
        raise ValueError(f"{path}: source {source!r} is not {HUB}…")
    return Origin(source, _relative(row.get("name", path)), None if commit == UNKNOWN else commit)


def _table(entry: Entry) -> str:
    name = entry.name if _BARE.fullmatch(entry.name) else json.dumps(entry.name)
    lines = [f"[models.{name}]", f"source = {json.dumps(entry.source)}"]
    if entry.source.startswith(HUB):
        lines.append(f"commit = {json.dumps(entry.commit or UNKNOWN)}")
    lines += [f"licence = {json.dumps(entry.licence)}", "files = ["]
    lines += [f"  {_row(file)}," for file in sorted(entry.files, key=_by_path)]
    return "\n".join([*lines, "]\n"])


def _row(file: LockedFile) -> str:
    size = "" if file.size is None else f"size = {file.size}, "
    digest = f"{size}sha256 = {json.dumps(file.sha256 or UNKNOWN)}"
    return f"{{ path = {json.dumps(file.path)}, {digest}{_origin_text(file.origin)} }}"


def _origin_text(origin: Origin | None) -> str:
    if origin is None:
        return ""
    texts = {"source": origin.source, "name": origin.name, "commit": origin.commit or UNKNOWN}
    return "".join(f", {key} = {json.dumps(text)}" for key, text in texts.items())


def _by_path(file: LockedFile) -> str:
    return file.path
