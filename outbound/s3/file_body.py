"""Reads an open file for uploads, at offsets of its own: the position of the descriptor does not change."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from typing import Any

_CHUNK_BYTES = 1 << 20


class UploadStopped(Exception):
    """The caller no longer wants the upload."""


class FileBody(io.RawIOBase):
    """The first `size` bytes of an open file, hashed as they are first read.

    s3transfer retries a part from memory, but reads a small file here again: no byte is hashed twice.
    """

    def __init__(self, fd: int, size: int, stopped: Callable[[], bool]) -> None:
        super().__init__()
        self._fd, self._size, self._stopped = fd, size, stopped
        self._at = self._hashed = 0
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        data = _read(self._fd, self._at, left if size is None or size < 0 else min(size, left), self._stopped)
        if self._at <= self._hashed < self._at + len(data):
            self.digest.update(data[self._hashed - self._at :])
            self._hashed = self._at + len(data)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def measure(fd: int, stopped: Callable[[], bool]) -> tuple[int, str]:
    """Returns the size and sha256 of the whole file. Calls `stopped` between chunks, and raises
    UploadStopped."""
    size, digest = 0, hashlib.sha256()
    while chunk := _read(fd, size, _CHUNK_BYTES, stopped):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _read(fd: int, at: int, size: int, stopped: Callable[[], bool]) -> bytes:
    """Returns `size` bytes from `at`, fewer only at the end of the file."""
    data = bytearray()
    while len(data) < size:
        if stopped():
            raise UploadStopped
        chunk = os.pread(fd, min(_CHUNK_BYTES, size - len(data)), at + len(data))
        if not chunk:
            break
        data += chunk
    return bytes(data)
