"""The weights that an endpoint's workers need, as control sends them to nodes: entries of lock files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.wire.messages import LockedWeights, WeightsFile

if TYPE_CHECKING:  # comes with the first template that names weights
    from stoker.models.weights import Entry, LockedFile


def locked_weights(names: Iterable[str], lock: Path | None = None) -> tuple[LockedWeights, ...]:
    """Returns the locked weights of these names, without those that workers make themselves. `lock`: a file
    other than this installation's. Raises WeightsError if the lock has no such entry."""
    from stoker.models.weights import read_lock

    found = read_lock(lock)
    entries = [found.entry(name) for name in dict.fromkeys(names)]
    return tuple(locked_entry(entry) for entry in entries if not entry.is_built)


class KnownWeights(Mapping[str, tuple[LockedWeights, ...]]):
    """The weights of each entry of this installation's lock, by name; none of those that workers make
    themselves. The lock is read when somebody looks: few templates name weights, and it takes 0.05 s."""

    @cached_property
    def _read(self) -> dict[str, tuple[LockedWeights, ...]]:
        from stoker.models.weights import read_lock

        entries = read_lock(None).entries
        return {entry.name: () if entry.is_built else (locked_entry(entry),) for entry in entries}

    def __getitem__(self, name: str) -> tuple[LockedWeights, ...]:
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


def locked_entry(entry: Entry) -> LockedWeights:
    return LockedWeights(entry.name, entry.source, entry.commit or "", tuple(map(locked_file, entry.files)))


def locked_file(file: LockedFile) -> WeightsFile:
    known = WeightsFile(file.path, file.size or 0, file.sha256 or "")
    if file.origin is None:
        return known
    origin = file.origin
    return WeightsFile(known.path, known.size, known.sha256, origin.source, origin.name, origin.commit or "")
