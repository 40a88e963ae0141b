"""The cache of inputs on disk: contents by their digest, and an index from URLs to contents.

    incoming/N ── whole ── contents/<sha256>        urls/<digest of the URL>   one small JSON file each

A content is believed only after this agent computed its digest; from then on the file's own facts (inode,
size, times of change) must stay as they were, or it is computed again. A file that is another than its name
says is dropped. So neither a crash in the middle nor a handler that reaches the folder puts a wrong content
into a job. What is served is an open descriptor: whoever has it keeps it whole, whatever is dropped.

The index holds digests of URLs only, for a URL may carry a secret. What is kept and what goes first is for
`agent.cache_policy` to decide.
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
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from stoker.agent import cache_policy
from stoker.agent.beside import beside
from stoker.agent.cache_policy import Content, Known
from stoker.agent.input_transfer import Held

log = logging.getLogger(__name__)

_READ = 1 << 20
_LOOKS = 3
"""Times that a content is read again because it changed in between."""

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the system says of a file: any write to it changes these, whoever does it."""

    inode: int
    size: int
    modified: int
    changed: int


class InputStore:
    """Keeps `most` bytes below `folder`, which no other process may use. `clock` is the wall clock."""

    def __init__(self, folder: Path, most: int, clock: Callable[[], float]) -> None:
        self._incoming, self._kept, self._index = (folder / name for name in ("incoming", "contents", "urls"))
        self._most = most
        self._clock = clock
        self._urls: dict[str, Known] = {}
        self._contents: dict[str, Content] = {}
        self._trusted: dict[str, Facts] = {}
        self._busy: list[str] = []
        self._number = 0
        self._load()

    @property
    def size(self) -> int:
        return sum(content.size for content in self._contents.values())

    def known(self, url: str) -> Known | None:
        """By `digest_of` the URL."""
        return self._urls.get(url)

    def new_path(self) -> Path:
        """For what comes now. Whoever asks for it removes it, unless it was kept."""
        self._number += 1
        return self._incoming / str(self._number)

    def keep(self, url: str, path: Path, known: Known) -> None:
        """Takes the whole file over, unless it is more than may be kept at all."""
        if known.size > self._most:
            self.forget(url)
            return
        kept = self._kept / known.sha256
        os.replace(path, kept)
        self._trusted[known.sha256] = _facts(os.stat(kept))
        self._contents[known.sha256] = Content(known.size, self._clock())
        self.remember(url, known)
        self._evict()

    def remember(self, url: str, known: Known) -> None:
        self._urls[url] = known
        path = self.new_path()
        path.write_text(json.dumps(asdict(known)), encoding="ascii")
        os.replace(path, self._index / url)
        for old in cache_policy.forgotten(self._urls):
            self.forget(old)

    def forget(self, url: str) -> None:
        if self._urls.pop(url, None) is not None:
            (self._index / url).unlink(missing_ok=True)

    async def open(self, sha256: str) -> Held | None:
        """A content that is here and is what it should be; None where it is not, and then it is gone."""
        with self._in_use(sha256):
            for _ in range(_LOOKS):
                held = self._held(sha256)
                if held is None:
                    break
                if _facts(os.fstat(held.fd)) == self._trusted.get(sha256):
                    self._contents[sha256] = replace(self._contents[sha256], used_at=self._clock())
                    return held
                held.close()
                found = await beside(f"read {sha256}", partial(_read, self._kept / sha256))
                if found is None or found[0] != sha256:
                    log.warning("an input that was kept is not what it was, and is dropped: %s", sha256)
                    break
                self._trusted[sha256] = found[1]
        self._drop(sha256)
        return None

    def _held(self, sha256: str) -> Held | None:
        content = self._contents.get(sha256)
        if content is None:
            return None
        try:
            return Held(_opened(self._kept / sha256), content.size, sha256)
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
        for sha256 in cache_policy.evicted(self._contents, self._busy, self._most):
            self._drop(sha256)

    def _drop(self, sha256: str) -> None:
        self._contents.pop(sha256, None)
        self._trusted.pop(sha256, None)
        with contextlib.suppress(OSError):  # a folder of that name, which only an intruder could have made
            (self._kept / sha256).unlink(missing_ok=True)
        for url in [url for url, known in self._urls.items() if known.sha256 == sha256]:
            self.forget(url)

    # -- what an earlier agent left

    def _load(self) -> None:
        shutil.rmtree(self._incoming, ignore_errors=True)
        for folder in (self._incoming, self._kept, self._index):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._index.iterdir():
            known = _parsed(path)
            if known is not None and _is_file(self._kept / known.sha256, known.size):
                self._urls[path.name] = known
                used = self._contents.get(known.sha256, Content(known.size, 0.0)).used_at
                self._contents[known.sha256] = Content(known.size, max(used, known.asked_at))
            else:
                path.unlink()
        for path in self._kept.iterdir():
            if path.name not in self._contents:
                path.unlink()
        self._evict()


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parsed(path: Path) -> Known | None:
    """None for a torn or foreign one."""
    try:
        fields = json.loads(path.read_bytes())
        texts = [fields[name] for name in ("sha256", "source", "etag", "last_modified")]
        numbers = [float(fields[name]) for name in ("asked_at", "fresh_until")]
        known = Known(texts[0], int(fields["size"]), *texts[1:], *numbers)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return known if all(isinstance(text, str) for text in texts) and _DIGEST.match(texts[0]) else None


def _is_file(path: Path, size: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == size


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _facts(found: os.stat_result) -> Facts:
    return Facts(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read(path: Path) -> tuple[str, Facts] | None:
    """On a thread: the digest of what is there, with the facts under which it was read; None where it changed
    or cannot be read."""
    digest = hashlib.sha256()
    try:
        fd = _opened(path)
    except OSError:
        return None
    try:
        before, offset = _facts(os.fstat(fd)), 0
        while piece := os.pread(fd, _READ, offset):
            digest.update(piece)
            offset += len(piece)
        return (digest.hexdigest(), before) if _facts(os.fstat(fd)) == before else None
    except OSError:
        return None
    finally:
        os.close(fd)
