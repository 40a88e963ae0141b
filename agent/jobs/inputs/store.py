"""The cache of inputs on disk: contents by their digest, and an index from URLs to contents.

    incoming/N ── complete ── contents/<sha256>        urls/<digest of the URL>   one small JSON file each

A content is served only after this agent has computed its digest. While the file's status (inode, size, times
of change) stays the same, the digest is trusted; otherwise it is computed again. A file whose digest is not
its name is removed. So neither a crash nor a handler that can write to the folder gives a job a wrong
content. Contents are served as open descriptors, which stay valid when the file is removed.

The index holds only digests of URLs, because a URL may contain a secret. `agent.jobs.inputs.cache_policy`
decides what is stored and what is evicted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from stoker.agent.jobs.inputs import cache_policy
from stoker.agent.jobs.inputs.cache_policy import Content, KnownUrl
from stoker.agent.jobs.inputs.transfer import OpenContent
from stoker.outbound.run_in_thread import run_in_thread

log = logging.getLogger(__name__)

_READ = 1 << 20
_LOOKS = 3
"""How often a content is read again if it changed meanwhile."""

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class FileStatus(Struct, frozen=True):
    """The status of a file. Every write to the file changes it."""

    inode: int
    size: int
    modified: int
    changed: int


class InputStore:
    """Stores at most `most_bytes` in `folder`, which no other process may use. `clock` is the wall clock."""

    def __init__(self, folder: Path, most_bytes: int, clock: Callable[[], float]) -> None:
        self._incoming, self._folder, self._index = (
            folder / name for name in ("incoming", "contents", "urls")
        )
        self._most_bytes = most_bytes
        self._clock = clock
        self._urls: dict[str, KnownUrl] = {}
        self._contents: dict[str, Content] = {}
        self._trusted: dict[str, FileStatus] = {}
        self._busy: list[str] = []
        self._number = 0
        self._load()

    @property
    def size(self) -> int:
        return sum(content.size for content in self._contents.values())

    def known(self, url: str) -> KnownUrl | None:
        """Returns what is stored about a URL, by its `digest_of`."""
        return self._urls.get(url)

    def new_path(self) -> Path:
        """Returns the path of a new file. The caller removes it, unless it was stored."""
        self._number += 1
        return self._incoming / str(self._number)

    def keep(self, url: str, path: Path, known: KnownUrl) -> None:
        """Moves a complete file into the store, unless it is larger than the store may be."""
        if known.size > self._most_bytes:
            self.forget(url)
            return
        stored = self._folder / known.sha256
        os.replace(path, stored)
        self._trusted[known.sha256] = _status(os.stat(stored))
        self._contents[known.sha256] = Content(known.size, self._clock())
        self.remember(url, known)
        self._evict()

    def remember(self, url: str, known: KnownUrl) -> None:
        self._urls[url] = known
        path = self.new_path()
        path.write_text(json.dumps(asdict(known)), encoding="ascii")
        os.replace(path, self._index / url)
        for old in cache_policy.surplus_urls(self._urls):
            self.forget(old)

    def forget(self, url: str) -> None:
        if self._urls.pop(url, None) is not None:
            (self._index / url).unlink(missing_ok=True)

    async def open(self, sha256: str) -> OpenContent | None:
        """Opens a content and verifies it. Returns None, and removes it, if it is missing or has changed."""
        with self._in_use(sha256):
            for _ in range(_LOOKS):
                content = self._opened(sha256)
                if content is None:
                    break
                if _status(os.fstat(content.fd)) == self._trusted.get(sha256):
                    self._contents[sha256] = replace(self._contents[sha256], used_at=self._clock())
                    return content
                content.close()
                found = await run_in_thread(f"read {sha256}", partial(_read, self._folder / sha256))
                if found is None or found[0] != sha256:
                    log.warning("a stored input has changed and is dropped: %s", sha256)
                    break
                self._trusted[sha256] = found[1]
        self._drop(sha256)
        return None

    def _opened(self, sha256: str) -> OpenContent | None:
        content = self._contents.get(sha256)
        if content is None:
            return None
        try:
            return OpenContent(_open(self._folder / sha256), content.size, sha256)
        except OSError:
            return None

    @contextlib.contextmanager
    def _in_use(self, sha256: str) -> Iterator[None]:
        self._busy.append(sha256)
        try:
            yield
        finally:
            self._busy.remove(sha256)

    def _evict(self) -> None:
        for sha256 in cache_policy.evicted(self._contents, self._busy, self._most_bytes):
            self._drop(sha256)

    def _drop(self, sha256: str) -> None:
        self._contents.pop(sha256, None)
        self._trusted.pop(sha256, None)
        with contextlib.suppress(OSError):  # it may be a folder, if an intruder made one
            (self._folder / sha256).unlink(missing_ok=True)
        for url in [url for url, known in self._urls.items() if known.sha256 == sha256]:
            self.forget(url)

    # -- what an earlier agent left

    def _load(self) -> None:
        shutil.rmtree(self._incoming, ignore_errors=True)
        for folder in (self._incoming, self._folder, self._index):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._index.iterdir():
            known = _parsed(path)
            if known is not None and _is_file(self._folder / known.sha256, known.size):
                self._urls[path.name] = known
                used = self._contents.get(known.sha256, Content(known.size, 0.0)).used_at
                self._contents[known.sha256] = Content(known.size, max(used, known.asked_at))
            else:
                path.unlink()
        for path in self._folder.iterdir():
            if path.name not in self._contents:
                path.unlink()
        self._evict()


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parsed(path: Path) -> KnownUrl | None:
    """Returns None if the file is damaged or not ours."""
    try:
        fields = json.loads(path.read_bytes())
        texts = [fields[name] for name in ("sha256", "source", "etag", "last_modified")]
        numbers = [float(fields[name]) for name in ("asked_at", "fresh_until")]
        known = KnownUrl(texts[0], int(fields["size"]), *texts[1:], *numbers)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return known if all(isinstance(text, str) for text in texts) and _DIGEST.match(texts[0]) else None


def _is_file(path: Path, size: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == size


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _status(found: os.stat_result) -> FileStatus:
    return FileStatus(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read(path: Path) -> tuple[str, FileStatus] | None:
    """Returns the digest of the file and its status, or None if it changed meanwhile or cannot be read. Runs
    in a thread."""
    digest = hashlib.sha256()
    try:
        fd = _open(path)
    except OSError:
        return None
    try:
        before, offset = _status(os.fstat(fd)), 0
        while data := os.pread(fd, _READ, offset):
            digest.update(data)
            offset += len(data)
        return (digest.hexdigest(), before) if _status(os.fstat(fd)) == before else None
    except OSError:
        return None
    finally:
        os.close(fd)
