"""Downloads one large file whose size is known, and resumes what an earlier download left. Synchronous, for
threads.

    what is there ── hashed ── the rest is requested ── 206: appended ──> the digest of the whole file
                                                     └─ 200: the server sends all of it, so from the beginning

For addresses that the operator named, such as a hub of weights: redirects are followed, and proxies of the
environment are used, except towards loopback. A header with a credential is not sent on to another host. What
is compressed all the same is unpacked, and sent from its beginning after it broke off. Does not retry: its
caller calls it again, and nothing that has arrived is lost. The HTTP client (httpx2) comes with the first
request.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stoker.outbound.content_encoding import NotUnpacked, Unpacking, unpacking_of
from stoker.outbound.errors import FetchFailed, TooLarge
from stoker.outbound.refused_addresses import redacted_url

if TYPE_CHECKING:
    import httpx2

CHUNK_BYTES = 1 << 20
RECEIVED_BYTES = 1 << 18
"""What a connection that breaks off may lose."""
CONNECT_S, SILENCE_S = 20.0, 60.0
_FROM = re.compile(r"bytes (\d+)-")


class DownloadStopped(Exception):
    """The caller stopped it. What has arrived stays in the file."""


@dataclass(frozen=True, slots=True)
class Rest:
    """The bytes that a source sends: `chunks` from the byte `begins_at` on."""

    begins_at: int
    chunks: Iterator[bytes]


class Source(Protocol):
    def rest(self, begins_at: int) -> AbstractContextManager[Rest]:
        """Returns the file from this byte on, or from its beginning. Raises FetchFailed and OSError."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on this host, or on a folder that is mounted here."""

    path: Path

    @contextmanager
    def rest(self, begins_at: int) -> Iterator[Rest]:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            raise FetchFailed(f"there is no {self.path}", HTTPStatus.NOT_FOUND) from None
        with file:
            file.seek(begins_at)
            yield Rest(begins_at, iter(lambda: file.read(CHUNK_BYTES), b""))


class HttpFile:
    """A file at a URL. `headers` may have a credential."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._url, self._headers = url, dict(headers or {})

    def __repr__(self) -> str:
        return f"HttpFile({redacted_url(self._url)!r})"

    @contextmanager
    def rest(self, begins_at: int) -> Iterator[Rest]:
        import httpx2

        direct = {f"all://{host}": None for host in ("127.0.0.1", "localhost", "[::1]")}
        limits = httpx2.Timeout(SILENCE_S, connect=CONNECT_S)
        try:
            with (
                httpx2.Client(
                    verify=_trust(), timeout=limits, follow_redirects=True, mounts=direct
                ) as client,
                closing(self._response(client, begins_at)) as response,
            ):
                found = self._begins_at(response, begins_at)
                yield Rest(found, _unpacked(response, unpacking_of(_encoding(response))))
        except httpx2.TimeoutException:
            raise FetchFailed(
                f"{redacted_url(self._url)} sent nothing for too long", reason="too_slow"
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = str(error) or type(error).__name__
            raise FetchFailed(f"{redacted_url(self._url)} cannot be reached, or broke off: {why}") from None
        except NotUnpacked as error:
            raise FetchFailed(f"{redacted_url(self._url)} {error}", reason="bad_answer") from None

    def _response(self, client: httpx2.Client, begins_at: int) -> httpx2.Response:
        """Requests the rest of the file, or the whole of one that comes compressed: a range counts the bytes
        that are sent, not those of the file."""
        headers = {**self._headers, "Accept-Encoding": "identity", "User-Agent": "stoker"}
        part = {"Range": f"bytes={begins_at}-"} if begins_at else {}
        sent = client.build_request("GET", self._url, headers={**headers, **part})
        response = client.send(sent, stream=True)
        if response.status_code == HTTPStatus.PARTIAL_CONTENT and _is_packed(response):
            response.close()
            response = client.send(client.build_request("GET", self._url, headers=headers), stream=True)
        return response

    def _begins_at(self, response: httpx2.Response, begins_at: int) -> int:
        if response.status_code == HTTPStatus.OK:
            return 0
        if response.status_code != HTTPStatus.PARTIAL_CONTENT or not begins_at:
            raise FetchFailed(
                f"{redacted_url(self._url)} answered {response.status_code}", response.status_code
            )
        match = _FROM.match(response.headers.get("content-range", ""))
        if match is None or int(match[1]) not in (0, begins_at) or _is_packed(response):
            raise FetchFailed(
                f"{redacted_url(self._url)} sent something that was not requested", reason="bad_answer"
            )
        return int(match[1])


def _encoding(response: httpx2.Response) -> str:
    return str(response.headers.get("content-encoding", ""))


def _is_packed(response: httpx2.Response) -> bool:
    return unpacking_of(_encoding(response)) is not None


def _unpacked(response: httpx2.Response, unpacking: Unpacking | None) -> Iterator[bytes]:
    chunks = response.iter_raw(RECEIVED_BYTES)
    if unpacking is None:
        yield from chunks
        return
    for chunk in chunks:
        yield from unpacking.pieces(chunk)
    unpacking.end()


def download(
    source: Source,
    path: Path,
    size: int,
    arrived: Callable[[int], None],
    stopped: Callable[[], bool] = lambda: False,
) -> str:
    """Completes the file at `path`, and returns the sha256 of the whole, which is on disk then.

    `arrived` is called with the number of bytes that are there. Raises FetchFailed, TooLarge if the source
    has more than `size` bytes, DownloadStopped, OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(fd, "r+b", buffering=0) as file:
        digest, there = hashlib.sha256(), os.fstat(fd).st_size
        if there > size:
            there = 0
            file.truncate(0)
        while chunk := file.read(CHUNK_BYTES):
            _go_on(stopped)
            digest.update(chunk)
            arrived(file.tell())
        if there < size:
            with source.rest(there) as rest:
                if rest.begins_at != there:
                    digest, there = hashlib.sha256(), 0
                    file.truncate(0)
                    file.seek(0)
                for chunk in rest.chunks:
                    _go_on(stopped)
                    there += len(chunk)
                    if there > size:
                        file.truncate(0)
                        raise TooLarge(f"{path.name} is more than the {size} bytes that are expected")
                    _write(file, chunk)
                    digest.update(chunk)
                    arrived(there)
        if there < size:
            raise FetchFailed(f"{path.name} broke off after {there} of {size} bytes")
        os.fsync(fd)
    return digest.hexdigest()


@functools.cache
def _trust() -> ssl.SSLContext:
    """Returns a TLS context with the system's certificates, which are slow to load."""
    import httpx2

    return httpx2.create_ssl_context()


class _Writable(Protocol):
    def write(self, data: memoryview, /) -> int | None: ...


def _write(file: _Writable, chunk: bytes) -> None:
    """Writes the whole chunk, of which an unbuffered file may take only a part at a time."""
    left = memoryview(chunk)
    while left:
        left = left[file.write(left) or 0 :]


def _go_on(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise DownloadStopped
