"""Brings one entry of weights to this node, in a thread: finds it, or makes room, fetches and verifies it.

    as locked already ──────────────────────────────────────────────────────────────────────────> done
    else ── lock ── wrong, and the agent's own: removed ── room ── files resumed, verified ── finish ──> done

Killed at any step, the next try finds either a whole folder or a part: files of the part are hashed before
they count, and a folder whose digests are not recorded is hashed as a whole.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from stoker.agent.weights import sources
from stoker.agent.weights.interfaces import WeightsFailed
from stoker.agent.weights.room import make_room
from stoker.agent.weights.sources import Hub, Mirror, Place
from stoker.agent.weights.store import WeightsStore, files_below
from stoker.outbound.download import download
from stoker.outbound.errors import FetchFailed, OutboundError
from stoker.wire.messages import LockedWeights, WeightsFile
from stoker.wire.messages.weights import AT

_REFUSED, _MISSING = (401, 403), (404, 410)


class Try(Struct):
    """The progress of one try. The thread writes, and the loop reads: `does` is "fetches" or "verifies", and
    empty while the try only looks. `here_bytes` of the entry are here and were read, of which `found_bytes`
    lay there before. The loop sets `stopped`."""

    does: str = ""
    here_bytes: int = 0
    found_bytes: int = 0
    stopped: bool = False


class Fetcher:
    def __init__(self, store: WeightsStore, hub: Hub, mirror: Mirror | None = None) -> None:
        self.store = store
        self._hub, self._mirror = hub, mirror

    def bring(self, entry: LockedWeights, one: Try, awaited: Collection[str] = ()) -> None:
        """Returns once the entry is here as it is locked. The entries `awaited`, by key, are not removed for
        it. Raises WeightsFailed, DownloadStopped."""
        sources.check(entry)
        try:
            if self.store.problem(entry, hashing=lambda: _do(one, "verifies")) is None:
                return
            with self.store.fetching(entry.key):
                self._fetch(entry, one, awaited)
        except OSError as error:
            raise WeightsFailed(_said(error)) from error

    def _fetch(self, entry: LockedWeights, one: Try, awaited: Collection[str]) -> None:
        store, key = self.store, entry.key
        wrong = store.problem(entry)
        if wrong is None:
            return  # another process has fetched it meanwhile
        _do(one, "fetches")
        if wrong:
            self._replace(store.name_of(entry), wrong)
        with store.making_room():
            self._make_room(entry, awaited)
            held = store.begin(key, entry.size)
        try:
            there = files_below(store.part(key))
            one.found_bytes = sum(min(there.get(file.path, 0), file.size) for file in entry.files)
            before = 0
            for file in entry.files:
                self._file(entry, file, before, one)
                before += file.size
            store.finish(entry)
        finally:
            os.close(held)

    def _replace(self, name: str, wrong: str) -> None:
        folder = self.store.folder / name
        if not self.store.is_own(name):
            raise WeightsFailed(
                f"{folder} is not as locked ({wrong}); remove it to have it fetched", definite=True
            )
        if not self.store.remove(name) and AT in name:  # what an older agent fetched may stay beside it
            raise WeightsFailed(f"{folder} is not as locked ({wrong}), and a worker uses it")

    def _make_room(self, entry: LockedWeights, awaited: Collection[str]) -> None:
        kept = self.store.kept()
        here = kept.pop(entry.key, None)
        kept |= {name: replace(kept[name], busy=True) for name in awaited if name in kept}
        decision = make_room(entry.size, here.here_bytes if here else 0, kept, self.store.limits())
        if decision.why_not:
            raise WeightsFailed(f"{entry.name} {decision.why_not}", definite=decision.definite)
        for name in decision.remove:
            if not self.store.remove(name):
                raise WeightsFailed(f"{name}, which was to be removed for them, is in use")

    def _file(self, entry: LockedWeights, file: WeightsFile, before: int, one: Try) -> None:
        path = self.store.part(entry.key) / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        place = sources.place_of(entry, file, self._hub, self._mirror)
        bring_file(place, file, path, partial(_arrived, one, before), lambda: one.stopped)


def _arrived(one: Try, before: int, there: int) -> None:
    one.here_bytes = before + there


def bring_file(
    place: Place,
    file: WeightsFile,
    path: Path,
    arrived: Callable[[int], None],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Downloads a file to a path, resumes what lies there, and verifies it. `arrived` is called with the
    bytes that are there. Raises WeightsFailed, DownloadStopped, OSError."""
    resumed = path.exists()
    while (digest := _downloaded(place, path, file.size, arrived, stopped)) != file.sha256:
        path.unlink()
        if not resumed:
            which = f"its sha256 is {digest[:12]}… where {file.sha256[:12]}… is locked"
            raise WeightsFailed(f"{place.said}: {which}", definite=True)
        resumed = False  # what lay there may have been of another revision, or damaged


def _downloaded(
    place: Place, path: Path, size: int, arrived: Callable[[int], None], stopped: Callable[[], bool]
) -> str:
    try:
        return download(place.source, path, size, arrived, stopped)
    except FetchFailed as failed:
        raise _explained(failed, place) from failed
    except OutboundError as failed:
        raise WeightsFailed(f"{place.said}: {failed}", definite=not failed.retryable) from failed


def _do(one: Try, what: str) -> None:
    one.does = what


def _explained(failed: FetchFailed, place: Place) -> WeightsFailed:
    if failed.status in _REFUSED:
        return WeightsFailed(f"{place.said} is refused ({failed.status}){place.hint}", definite=True)
    if failed.status in _MISSING:
        return WeightsFailed(f"there is no {place.said} ({failed.status})", definite=True)
    return WeightsFailed(f"{place.said}: {failed}", definite=not failed.retryable)


def _said(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    named = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{named}"
