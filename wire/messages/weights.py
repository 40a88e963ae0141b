"""Weights that a worker needs, as its installation's lock file names them: what a node fetches them by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec import Struct

UNKNOWN = "unknown"
"""Stands for a digest that the lock file does not have yet."""

AT = "@"
"""Between the name of an entry and the digest of its contents; no name has one."""

HELD, SIZES = "weights", "weights_bytes"
ROOM, AVAILABLE, MOST = "weights_room_bytes", "weights_available_bytes", "weights_most_bytes"
"""Facts of a node that keeps weights: the keys of the entries that it holds, with commas, and how many bytes
each of them has, in the same order; how many bytes it can fetch without removing others; how many if it
removes all that no worker uses; how many it could hold at most."""


class WeightsFile(Struct, frozen=True):
    """A file of weights. `path` is below the entry's folder. `sha256` is empty while it is unknown. A file
    from another repository than its entry's names that, with its `name` there and its `commit`."""

    path: str
    size: int = 0
    sha256: str = ""
    source: str = ""
    name: str = ""
    commit: str = ""


class LockedWeights(Struct, frozen=True):
    """An entry of a lock file. `source` is `huggingface:OWNER/NAME`, at `commit`, or `folder`: in no
    repository."""

    name: str
    source: str
    commit: str = ""
    files: tuple[WeightsFile, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of all files whose size is known."""
        return sum(file.size for file in self.files)

    @property
    def key(self) -> str:
        """Returns the entry's name and what its files contain: an entry of the same name in another lock may
        have others."""
        return key_of(self.name, ((file.path, file.sha256) for file in self.files))


def key_of(name: str, files: Iterable[tuple[str, str]]) -> str:
    """Returns the key of an entry of weights. `files`: the path and the sha256 of each."""
    lines = (f"{sha256 or UNKNOWN}  {path}\n" for path, sha256 in sorted(files))
    return f"{name}{AT}{hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]}"
