"""Sends requests that were signed elsewhere; the sender has no credentials.

The counterpart of `ObjectStore.presign_*`: synchronous and thread-safe, with the same errors. A body is read
and hashed in chunks. If its hash is not the announced one, the request is aborted before the last byte, so
that the store keeps nothing of it. The HTTP client (httpx2) and `html` come with the first request: most jobs
of many agents have no files, and the two take 0.1 s and 6 MB.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stoker.outbound.errors import FileChanged, ObjectDamaged, ObjectStoreDown, TooLarge
from stoker.outbound.s3.file_body import UploadStopped

if TYPE_CHECKING:
    import httpx2

_CHUNK_BYTES = 1 << 20
_ERROR_MAX_BYTES = 64 << 10
"""How much of an error response is read: errors are short."""


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A signed request, valid until it expires. `headers` are part of the signature."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of a file: `size` bytes of the open file `fd`, from offset `at`."""

    fd: int
    at: int
    size: int


CONNECT_S, SILENCE_S = 5.0, 30.0


class SignedRequests:
    """Sends signed requests over one HTTP client, which the first request opens and `close` closes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: httpx2.Client | None = None

    def put(self, request: SignedRequest, data: bytes, doing: str) -> None:
        self._send("PUT", request, doing, data)

    def put_stretch(
        self,
        request: SignedRequest,
        stretch: ByteRange,
        digest: hashlib._Hash,
        expected: str,
        stopped: Callable[[], bool],
        doing: str,
    ) -> str:
        """Returns the ETag. Updates `digest` with these bytes; after them it must equal `expected`, unless
        that is empty. Raises FileChanged if it does not, or if the file has become shorter."""
        body = _checked(stretch, digest, expected, stopped)
        sized = SignedRequest(request.url, {**request.headers, "Content-Length": str(stretch.size)})
        response = self._send("PUT", sized, doing, body if stretch.size else b"")
        return str(response.headers.get("etag", ""))

    def start(self, request: SignedRequest, doing: str) -> str:
        """Starts a multipart upload and returns its id."""
        import html

        found = re.search(r"<UploadId>([^<]+)</UploadId>", self._send("POST", request, doing, b"").text)
        if found is None:
            raise ObjectDamaged(f"{doing} failed: the object store returned no upload id")
        return html.unescape(found[1])

    def finish(self, request: SignedRequest, etags: Sequence[str], doing: str) -> None:
        import html

        parts = "".join(
            f"<Part><PartNumber>{n}</PartNumber><ETag>{html.escape(etag, quote=False)}</ETag></Part>"
            for n, etag in enumerate(etags, 1)
        )
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        body = f'<CompleteMultipartUpload xmlns="{namespace}">{parts}</CompleteMultipartUpload>'
        response = self._send("POST", request, doing, body.encode())
        if "<Error>" in response.text:  # S3 may send status 200 and then fail
            raise ObjectStoreDown(f"{doing} failed: {_element(response.text, 'Message')}")

    def drop(self, request: SignedRequest, doing: str) -> None:
        """Aborts a multipart upload."""
        self._send("DELETE", request, doing, b"")

    def get(self, request: SignedRequest, most: int, sha256: str, what: str) -> bytes:
        """Raises TooLarge above `most` bytes, ObjectDamaged if the data does not have this `sha256`."""
        data = bytearray()
        with self._response("GET", request, f"reading {what}", b"") as response:
            for chunk in response.iter_raw(_CHUNK_BYTES):
                data += chunk
                if len(data) > most:
                    raise TooLarge(f"the object {what} is more than the {most} bytes that are allowed")
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ObjectDamaged(f"the object {what} was altered: it is not the one that was stored")
        return bytes(data)

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _send(
        self, method: str, request: SignedRequest, doing: str, body: bytes | Iterator[bytes]
    ) -> httpx2.Response:
        with self._response(method, request, doing, body) as response:
            response.read()
        return response

    @contextmanager
    def _response(
        self, method: str, request: SignedRequest, doing: str, body: bytes | Iterator[bytes]
    ) -> Iterator[httpx2.Response]:
        """Yields a successful response. A redirect counts as an error: its target was not signed."""
        import httpx2

        headers = {"Accept-Encoding": "identity", "User-Agent": "stoker", **request.headers}
        try:
            client = self._client()
            with client.stream(method, request.url, headers=headers, content=body) as response:
                if not response.is_success:
                    raise _refused(response, method, request.url, doing)
                yield response
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            where = urlsplit(request.url)
            store = f"{where.scheme}://{where.netloc}"
            reason = str(error) or type(error).__name__
            message = f"{doing} failed: the object store at {store} cannot be reached: {reason}"
            raise ObjectStoreDown(message[:500]) from None

    def _client(self) -> httpx2.Client:
        import httpx2

        from stoker.outbound.s3.line_transport import LineTransport

        with self._lock:
            if self._opened is None:
                cafile = os.environ.get("SSL_CERT_FILE")
                tls = ssl.create_default_context(cafile=cafile) if cafile else True
                timeout = httpx2.Timeout(SILENCE_S, connect=CONNECT_S)
                self._opened = httpx2.Client(transport=LineTransport(tls), trust_env=False, timeout=timeout)
            return self._opened


def _checked(
    stretch: ByteRange, digest: hashlib._Hash, expected: str, stopped: Callable[[], bool]
) -> Iterator[bytes]:
    at, end = stretch.at, stretch.at + stretch.size
    while at < end:
        if stopped():
            raise UploadStopped
        chunk = os.pread(stretch.fd, min(_CHUNK_BYTES, end - at), at)
        at += len(chunk)
        digest.update(chunk)
        if not chunk or (at == end and expected and digest.hexdigest() != expected):
            raise FileChanged("the file was altered while it was being uploaded")
        yield chunk


def _refused(response: httpx2.Response, method: str, url: str, doing: str) -> Exception:
    # With the first refusal: most agents see none, and botocore takes 0.1 s and 7 MB.
    from botocore.exceptions import ClientError

    from stoker.outbound.s3.answers import explain

    data = b""
    for chunk in response.iter_raw(_ERROR_MAX_BYTES):
        data += chunk
        if len(data) >= _ERROR_MAX_BYTES:
            break
    text = data.decode(errors="replace")
    code = _element(text, "Code") or str(response.status_code)
    parsed = {
        "Error": {"Code": code, "Message": _element(text, "Message") or response.reason_phrase},
        "ResponseMetadata": {"HTTPStatusCode": response.status_code},
    }
    where = urlsplit(url)
    bucket = where.path.split("/")[1] if "/" in where.path else ""
    error = ClientError(parsed, method)  # type: ignore[arg-type]
    return explain(error, doing, f"{where.scheme}://{where.netloc}", bucket)


def _element(text: str, name: str) -> str:
    """Returns the text of the first XML element of this name, or "" without such an element."""
    import html

    found = re.search(rf"<{name}>([^<]*)</{name}>", text)
    return html.unescape(found[1]) if found else ""
