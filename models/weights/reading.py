"""The reading of an entry's weights from the disk once, by several threads, which verifies them on the way.

    Reading      names, sizes, and all files but safetensors are verified
    ahead        threads read the files, while the libraries are imported; `wait` waits for them. The pipeline
                 then maps the files (on a CPU): their pages are in memory, and only what lies at no boundary
                 is copied (`alignment`)
    tensors      on a GPU: threads read the files into pinned memory and copy from there
    finish       waits for the digests. Nothing may be computed before it has returned

Reads are large and many at a time: pages of a mapped file that are read as they are touched come in small
pieces, one after the other. Safetensors hold numbers without code: to build from such a file before its
digest is known is harmless, to compute with it is not. A file whose digest is in the cache of `verification`
is not hashed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoker.models.weights.lock import Entry
from stoker.models.weights.verification import (
    CHANGING,
    DigestCache,
    WeightsRefused,
    check_files,
    compare,
    hash_all,
    read_cache,
    stamp_of,
    write_cache,
)

if TYPE_CHECKING:
    import torch

    from stoker.models.weights.tensors import File, Lane

BLOCK: Final = 8 << 20
"""Bytes that are read, hashed and copied at a time."""
SEGMENT: Final = 256 << 20
"""The most bytes of a file that one thread reads, unless it hashes the file: that goes from its start to its
end."""
THREADS: Final = min(8, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Done:
    """The amount that was read: bytes, and the seconds from the first to the last."""

    size: int
    seconds: float


class Reading:
    """The files of one entry in their folder. `finish` must be called, whatever becomes of the pipeline."""

    def __init__(self, entry: Entry, folder: Path) -> None:
        """Raises WeightsRefused if a name, a size, or a file that is not safetensors is not as locked."""
        check_files(entry, folder)
        self._entry, self._folder = entry, folder
        self._cached = read_cache(folder)
        self._large = {
            file.path: file.size or 0 for file in entry.files if file.path.endswith(".safetensors")
        }
        small = tuple(file for file in entry.files if file.path not in self._large)
        self._hashed: DigestCache = hash_all(folder, small, self._cached)
        self._refuse_altered(file.path for file in small)
        self._pool = ThreadPoolExecutor(THREADS, "weights")
        self._work: dict[str, list[Future[None]]] = {}
        self._began_s = self._ended_s = time.perf_counter()
        self._size = 0

    def ahead(self) -> None:
        """Begins to read the files on other threads. Files that are not hashed are left out if the memory
        cannot hold all of them."""
        fits = sum(self._large.values()) < available_bytes()
        for path in self._largest_first(path for path in self._large if path not in self._work):
            parts = self._parts(path)
            if fits or not self._is_known(path):
                self._work[path] = [self._pool.submit(self._read, path, *part) for part in parts]

    def wait(self) -> None:
        """Waits for what `ahead` began."""
        for work in self._work.values():
            for one in work:
                one.result()

    def tensors(self, paths: Sequence[str], device: str) -> dict[str, dict[str, torch.Tensor]]:
        """Returns the tensors of each of these files, by name, on a torch device, in the dtypes that they
        have in the file."""
        from stoker.models.weights.tensors import File, Lane

        files = {path: File(self._folder / path, device) for path in paths}
        for path in self._largest_first(paths):
            self._work[path] = [
                self._pool.submit(self._copy, path, *part, files[path], Lane(device))
                for part in self._parts(path)
            ]
        self.wait()
        return {path: file.tensors for path, file in files.items()}

    def finish(self) -> Done:
        """Waits until all is read, and keeps the digests. Raises WeightsRefused if a file was altered."""
        try:
            for path in self._large:
                if path not in self._work:
                    if self._is_known(path):
                        self._hashed[path] = self._cached[path]
                    else:
                        self._work[path] = [self._pool.submit(self._read, path, *self._parts(path)[0])]
            self.wait()
        finally:
            self._pool.shutdown(cancel_futures=True)
        if self._hashed != self._cached:
            write_cache(self._folder, self._hashed)
        self._refuse_altered(self._large)
        return Done(self._size, self._ended_s - self._began_s)

    def _refuse_altered(self, paths: Iterable[str]) -> None:
        wanted = set(paths)
        files = tuple(file for file in self._entry.files if file.path in wanted)
        if altered := tuple(compare(files, self._hashed)):
            raise WeightsRefused(self._entry, altered)

    def _largest_first(self, paths: Iterable[str]) -> list[str]:
        """Sorts the paths, so that the threads end at about the same time."""
        return sorted(paths, key=lambda path: -self._large[path])

    def _is_known(self, path: str) -> bool:
        """Returns whether the cache has the digest of the file as it is now."""
        return path in self._cached and self._cached[path][0] == stamp_of((self._folder / path).stat())

    def _parts(self, path: str) -> list[tuple[int, int]]:
        """Returns the first byte and the one after the last of what one thread reads: all, if the file is
        hashed."""
        size = self._large[path]
        step = SEGMENT if self._is_known(path) else size
        return [(first, min(first + step, size)) for first in range(0, size, step)]

    def _read(self, path: str, first: int, last: int) -> None:
        with self._opened(path) as (number, hashed):
            block = memoryview(bytearray(min(BLOCK, last - first)))
            for begin in range(first, last, BLOCK):
                part = block[: last - begin]
                fill(part, number, begin)
                if hashed is not None:
                    hashed.update(part)
        self._count(last - first)

    def _copy(self, path: str, first: int, last: int, file: File, lane: Lane) -> None:
        with self._opened(path) as (number, hashed):
            for begin in range(first, last, BLOCK):
                part = lane.buffer(min(BLOCK, last - begin))
                fill(part, number, begin)
                if hashed is not None:
                    hashed.update(part)
                lane.copy(file, begin)
            lane.settle()
        self._count(last - first)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, hashlib._Hash | None]]:
        """Yields the descriptor of a file, and what takes its bytes; None if its digest is known. The digest
        of a file that was written meanwhile belongs to no state of it."""
        with (self._folder / path).open("rb", buffering=0) as file:
            if self._is_known(path):
                self._hashed[path] = self._cached[path]
                yield file.fileno(), None
                return
            before, digest = stamp_of(os.fstat(file.fileno())), hashlib.sha256()
            yield file.fileno(), digest
            after = stamp_of(os.fstat(file.fileno()))
            self._hashed[path] = (before, digest.hexdigest()) if before == after else CHANGING

    def _count(self, size: int) -> None:
        self._size += size
        self._ended_s = time.perf_counter()


def available_bytes() -> int:
    """Returns the memory that files may take; without /proc no bound is known."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return sys.maxsize


def fill(into: memoryview, number: int, first: int) -> None:
    """Fills the buffer with the bytes of an open file from `first` on; the system reads as many more ahead
    while these are used. Raises OSError if the file ends before."""
    os.posix_fadvise(number, first, 2 * len(into), os.POSIX_FADV_WILLNEED)
    done = 0
    while done < len(into):
        got = os.preadv(number, [into[done:]], first + done)
        if not got:
            raise OSError(f"the file ends {len(into) - done} bytes early")
        done += got
