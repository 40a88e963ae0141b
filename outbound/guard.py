"""HTTP to addresses that callers name: inputs that are URLs, and webhooks.

For each hop, the guard checks the URL, resolves its host once, checks every address of the host, and connects
to one of exactly these addresses. It never queries the name server a second time, so DNS rebinding does not
work. TLS and the Host header use the name. Redirects are followed here, and each hop is checked like the
first. Proxies, netrc and cookies of the environment are not used.

    url -> malformed? -> resolve -> refusal? -> connect to that address -> 3xx -> url
                                                                       -> 2xx -> body, within limits
                                                                       -> 304 -> if a condition was sent

The guard does not retry: the owner of the job or of the webhook decides that. It requests bodies that are not
compressed, and unpacks those that are all the same piece by piece (`outbound.content_encoding`): the limit of
the size counts for what comes out.

The HTTP client (httpx2) comes with the first URL: it takes 4 MB and 0.1 s of a start, and some see none.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO, Protocol

from stoker.outbound.content_encoding import NotUnpacked, Unpacking, unpacking_of
from stoker.outbound.errors import FetchFailed, TooLarge, UrlRefused
from stoker.outbound.lookups import Lookups
from stoker.outbound.refused_addresses import malformed, redacted_url, refusal
from stoker.outbound.wait_limits import NOBODY, Waiter

if TYPE_CHECKING:
    import httpx2

Resolver = Callable[[str, int, Waiter], Awaitable[Sequence[str]]]
"""Maps host, port and the caller to addresses as text. Raises OSError if the name has none."""

_ADDRESSES_TRIED = 4
_CHUNK_BYTES = 64 * 1024
_NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_NOT_MODIFIED = 304


class Sink(Protocol):
    """A file opened for writing bytes, to which a body is written."""

    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of one fetch. `timeout_s` covers everything: resolving, connecting, redirects, the body.
    `silence_s` is how long the server may send nothing."""

    size_bytes: int = 100 << 20
    timeout_s: float = 60.0
    redirects: int = 10
    silence_s: float = 30.0


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response before its body. `url` is the final URL, after `hops` redirects; `size` is the announced
    size of the body, or None where that is unknown or of the compressed body; `headers` have lower-case
    names."""

    status: int
    url: str
    hops: int
    size: int | None
    headers: Mapping[str, str]

    @property
    def unchanged(self) -> bool:
        return self.status == _NOT_MODIFIED


@dataclass(frozen=True, slots=True)
class Fetched:
    """A body that was fetched whole. `media_type` is the server's, in lower case and without parameters, or
    empty."""

    size: int
    media_type: str
    sha256: str
    head: ResponseHead


class Guard:
    """Fetches and posts. `whose` is the caller that `outbound.lookups` counts lookups for."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._resolver = resolver or Lookups()
        self._tls = tls

    async def check(self, url: str) -> None:
        """Raises UrlRefused if `url` may not be used, as far as is known now. Opens no connection."""
        await self._vet(url, NOBODY)

    async def fetch_to(
        self,
        url: str,
        file: Sink,
        limits: FetchLimits | None = None,
        *,
        conditions: Mapping[str, str] | None = None,
        on_head: Callable[[ResponseHead], None] | None = None,
        whose: Waiter = NOBODY,
    ) -> Fetched:
        """Writes the body of `url` to `file`. After an error, the bytes written so far are of no use.

        `conditions` are headers such as If-None-Match. With them, and only with them, a response may be
        `unchanged`; then nothing is written. `on_head` is called before the body is read, and may raise.
        """
        limits = limits or FetchLimits()
        request = _Request(file, limits, conditions or {}, on_head or _ignore, whose)
        try:
            async with asyncio.timeout(limits.timeout_s):
                return await self._follow(url, request)
        except TimeoutError:
            message = f"{redacted_url(url)} was not fetched within {limits.timeout_s:g} s"
            raise FetchFailed(message, reason="too_slow") from None

    async def post_json(
        self,
        url: str,
        body: bytes | BinaryIO,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        whose: Waiter = NOBODY,
    ) -> int:
        """Posts JSON text, which may be in a file, and returns the status. The response's body is not read,
        and a redirect is not followed."""
        sent = {**(headers or {}), "Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._exchange("POST", url, sent, body, whose) as response,
            ):
                return response.status_code
        except TimeoutError:
            raise FetchFailed(f"{redacted_url(url)} did not answer within {timeout_s:g} s") from None

    async def _follow(self, url: str, request: _Request) -> Fetched:
        headers = {"Accept-Encoding": "identity", **request.conditions}
        most = request.limits.redirects
        for hops in range(most + 1):
            async with self._exchange(
                "GET", url, headers, None, request.whose, request.limits.silence_s
            ) as response:
                if not response.has_redirect_location:
                    return await _receive(_head_of(url, hops, response), response, request)
                url = _next_url(url, response)
        raise FetchFailed(
            f"{redacted_url(url)} was not fetched: more than {most} redirects", reason="redirect"
        )

    async def _vet(self, url: str, whose: Waiter) -> tuple[httpx2.URL, Sequence[str]]:
        """Returns the parsed URL, and the only addresses that may be connected to for this URL. Raises
        UrlRefused and FetchFailed."""
        import httpx2

        if why := malformed(url):
            raise UrlRefused(why, "malformed" if url.lower().startswith(("http:", "https:")) else "scheme")
        try:
            parsed = httpx2.URL(url)
            host = parsed.raw_host.decode("ascii").strip("[]")
        except (httpx2.InvalidURL, ValueError):
            raise UrlRefused("the URL is refused: it cannot be read as one", "malformed") from None
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        try:
            addresses = tuple(await self._resolver(host, port, whose))
        except (OSError, UnicodeError):  # UnicodeError: a label that is empty, or over 63 characters
            raise FetchFailed(
                f"{redacted_url(url)} cannot be reached: its host name has no address"
            ) from None
        if why := refusal(url, addresses, self._allow_private):
            raise UrlRefused(why)
        return parsed, addresses

    def _trust(self) -> ssl.SSLContext:
        """Returns a TLS context with the system's certificates. They are slow to load, so they are loaded
        once, when first needed."""
        import httpx2

        if self._tls is None:
            self._tls = httpx2.create_ssl_context()
        return self._tls

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | BinaryIO | None,
        whose: Waiter,
        silence_s: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Sends a request to a checked address and yields the response. Each request uses a new client: a
        pooled connection is found by its address only, so a second name at the same address would reuse the
        first name's TLS session."""
        import httpx2

        parsed, addresses = await self._vet(url, whose)
        tls = self._trust() if parsed.scheme == "https" else _NO_AUTHORITIES
        client = httpx2.AsyncClient(verify=tls, trust_env=False, timeout=httpx2.Timeout(None, read=silence_s))
        async with client:
            try:
                response = await _send_to_first(client, method, parsed, addresses, headers, body)
            except httpx2.ReadTimeout:
                raise _silent(url, silence_s) from None
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                raise FetchFailed(f"{redacted_url(url)} cannot be reached: {_text(error)}") from None
            try:
                yield response
            except httpx2.ReadTimeout:
                raise _silent(url, silence_s) from None
            except httpx2.HTTPError as error:
                raise FetchFailed(f"{redacted_url(url)} broke off: {_text(error)}") from None
            finally:
                await response.aclose()


@dataclass(frozen=True, slots=True)
class _Request:
    file: Sink
    limits: FetchLimits
    conditions: Mapping[str, str]
    on_head: Callable[[ResponseHead], None]
    whose: Waiter


def _ignore(_head: ResponseHead) -> None:
    """Does nothing with the head, for callers that passed no `on_head`."""


def _silent(url: str, silence_s: float | None) -> FetchFailed:
    return FetchFailed(f"{redacted_url(url)} sent nothing for {silence_s:g} s", reason="too_slow")


async def _send_to_first(
    client: httpx2.AsyncClient,
    method: str,
    url: httpx2.URL,
    addresses: Sequence[str],
    headers: Mapping[str, str],
    body: bytes | BinaryIO | None,
) -> httpx2.Response:
    """Sends to the first address that accepts a connection. After a connection, nothing is sent twice."""
    import httpx2

    failure: httpx2.ConnectError | None = None
    for address in addresses[:_ADDRESSES_TRIED]:
        request = _pinned(client, method, url, address, headers, body)
        try:
            return await client.send(request, stream=True, follow_redirects=False)
        except httpx2.ConnectError as error:
            failure = error
    raise failure or httpx2.ConnectError("it has no address")


def _pinned(
    client: httpx2.AsyncClient,
    method: str,
    url: httpx2.URL,
    address: str,
    headers: Mapping[str, str],
    body: bytes | BinaryIO | None,
) -> httpx2.Request:
    """Returns a request that goes to `address` and names the URL's host in its Host header and in TLS."""
    own = {**headers, "Host": url.netloc.decode("ascii"), "User-Agent": "stoker"}
    content: bytes | AsyncIterator[bytes] | None
    if not (body is None or isinstance(body, bytes)):
        own["Content-Length"] = str(body.seek(0, os.SEEK_END))
        content = _read(body)
    else:
        content = body
    request = client.build_request(method, url.copy_with(host=address), headers=own, content=content)
    host = url.raw_host.decode("ascii")
    if not _is_address(host.strip("[]")):
        request.extensions["sni_hostname"] = host
    return request


async def _read(file: BinaryIO) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def _head_of(url: str, hops: int, response: httpx2.Response) -> ResponseHead:
    length = response.headers.get("content-length", "")
    size = int(length) if length.isdecimal() else None
    return ResponseHead(response.status_code, url, hops, size, dict(response.headers))


async def _receive(head: ResponseHead, response: httpx2.Response, request: _Request) -> Fetched:
    url, most = head.url, request.limits.size_bytes
    if head.unchanged and request.conditions:
        request.on_head(head)
        return Fetched(0, "", "", head)
    if not response.is_success:
        raise FetchFailed(f"{redacted_url(url)} answered {head.status}", head.status)
    unpacking = _unpacking(url, response)
    if head.size is not None and head.size > _packed_most(most, unpacking):
        raise TooLarge(f"{redacted_url(url)} is {head.size} bytes; at most {most} are allowed")
    head = head if unpacking is None else replace(head, size=None)
    request.on_head(head)
    size, digest = 0, hashlib.sha256()
    async with aclosing(_pieces(url, response, unpacking, most)) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > most:
                raise TooLarge(f"{redacted_url(url)} is more than the {most} bytes that are allowed")
            digest.update(piece)
            request.file.write(piece)
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Fetched(size, media_type, digest.hexdigest(), head)


def _unpacking(url: str, response: httpx2.Response) -> Unpacking | None:
    try:
        return unpacking_of(response.headers.get("content-encoding", ""))
    except NotUnpacked as error:
        raise FetchFailed(f"{redacted_url(url)} {error}", reason="bad_answer") from None


def _packed_most(most: int, unpacking: Unpacking | None) -> int:
    """Returns how large the compressed body may be: what does not become smaller becomes a little larger."""
    return most if unpacking is None else most + (most >> 6) + 4096


async def _pieces(
    url: str, response: httpx2.Response, unpacking: Unpacking | None, most: int
) -> AsyncGenerator[bytes, None]:
    """Yields the body as it is to be written."""
    if unpacking is None:
        async for chunk in response.aiter_raw():
            yield chunk
        return
    left = _packed_most(most, unpacking)
    try:
        async for chunk in response.aiter_raw():
            left -= len(chunk)
            if left < 0:  # nothing much may come out of it, without end
                raise TooLarge(f"{redacted_url(url)} is more than the {most} bytes that are allowed")
            for piece in unpacking.pieces(chunk):
                yield piece
                await asyncio.sleep(0)  # a chunk may unpack to very many pieces
        unpacking.end()
    except NotUnpacked as error:
        raise FetchFailed(f"{redacted_url(url)} {error}", reason="bad_answer") from None


def _next_url(url: str, response: httpx2.Response) -> str:
    import httpx2

    try:
        return str(httpx2.URL(url).join(response.headers["location"]))
    except (httpx2.InvalidURL, ValueError):
        message = f"{redacted_url(url)} redirects to something that is not a URL"
        raise FetchFailed(message, reason="redirect") from None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
