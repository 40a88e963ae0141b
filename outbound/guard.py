"""HTTP to addresses that callers name: inputs that are URLs, and webhooks.

For each hop: the URL is checked, its host is resolved once, every address it has is checked, and the
connection goes to one of exactly these addresses. A second answer of the name server is never asked for, so
rebinding it is of no use. TLS and the Host header keep the name. Redirects are followed by hand,
each hop guarded like the first; proxies, netrc and cookies of the environment play no part.

    url -> malformed? -> resolve -> refusal? -> connect to that address -> 3xx -> url
                                                                       -> 2xx -> body, within limits
                                                                       -> 304 -> where it was asked for

Not done here: no retries (whoever owns the job or the webhook decides), no decompression (a small answer may
unpack to a huge one, so none is asked for, and a compressed one is refused).
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import httpx

from stoker.outbound.addresses import malformed, refusal, shown
from stoker.outbound.errors import FetchFailed, TooLarge, UrlRefused

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to the addresses, as text. Raises OSError where the name has none."""

_ADDRESSES_TRIED = 4
_TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_NOT_MODIFIED = 304


class Sink(Protocol):
    """Where a body goes: a file that is open for writing bytes."""

    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """`seconds` is for everything: resolving, connecting, redirects, the body. `silence` is how long the
    server may say nothing at all."""

    size: int = 100 << 20
    seconds: float = 60.0
    redirects: int = 3
    silence: float = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came before the body. `url` is where it came from after `hops` redirects, `size` what was
    announced (None where nothing was); `headers` have lower-case names."""

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
    """`media_type` is what the server said, in lower case, without parameters; empty where it did not."""

    size: int
    media_type: str
    sha256: str
    answer: Answer


async def resolve(host: str, port: int) -> Sequence[str]:
    """The system's resolver. Its thread may outlive a time limit by the system's own."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class Guard:
    def __init__(
        self, *, allow_private: bool = False, resolver: Resolver = resolve, tls: ssl.SSLContext | None = None
    ) -> None:
        self._allow_private = allow_private
        self._resolver = resolver
        self._tls = tls

    async def check(self, url: str) -> None:
        """Raise UrlRefused if `url` may not be used, as far as can be told now. Connects nowhere."""
        await self._vet(url)

    async def fetch_to(
        self,
        url: str,
        file: Sink,
        limits: Limits | None = None,
        *,
        conditions: Mapping[str, str] | None = None,
        begun: Callable[[Answer], None] | None = None,
    ) -> Fetched:
        """Write what `url` holds to `file`. After an error, what was written until then is worthless.

        `conditions` are headers such as If-None-Match: with them, and only with them, an answer may be
        `unchanged`, and nothing is written. `begun` hears of an answer before its body; it may raise.
        """
        limits = limits or Limits()
        wish = _Wish(file, limits, conditions or {}, begun or _heard)
        try:
            async with asyncio.timeout(limits.seconds):
                return await self._follow(url, wish)
        except TimeoutError:
            told = f"{shown(url)} was not fetched within {limits.seconds:g} s"
            raise FetchFailed(told, reason="too_slow") from None

    async def post_json(
        self, url: str, body: bytes, headers: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> int:
        """Post JSON text; the answer's status. Its body is not read, and a redirect is not followed."""
        sent = {**(headers or {}), "Content-Type": "application/json"}
        try:
            async with asyncio.timeout(timeout), self._exchange("POST", url, sent, body) as response:
                return response.status_code
        except TimeoutError:
            raise FetchFailed(f"{shown(url)} did not answer within {timeout:g} s") from None

    async def _follow(self, url: str, wish: _Wish) -> Fetched:
        headers = {"Accept-Encoding": "identity", **wish.conditions}
        most = wish.limits.redirects
        for hops in range(most + 1):
            async with self._exchange("GET", url, headers, None, wish.limits.silence) as response:
                if not response.has_redirect_location:
                    return await _receive(_answer(url, hops, response), response, wish)
                url = _next_url(url, response)
        raise FetchFailed(f"{shown(url)} was not fetched: more than {most} redirects", reason="redirect")

    async def _vet(self, url: str) -> tuple[httpx.URL, Sequence[str]]:
        """The URL as the client reads it, and the only addresses that may be connected to for it."""
        if why := malformed(url):
            raise UrlRefused(why, "malformed" if url.lower().startswith(("http:", "https:")) else "scheme")
        try:
            parsed = httpx.URL(url)
            host = parsed.raw_host.decode("ascii").strip("[]")
        except (httpx.InvalidURL, ValueError):
            raise UrlRefused("the URL is refused: it cannot be read as one", "malformed") from None
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        try:
            addresses = tuple(await self._resolver(host, port))
        except (OSError, UnicodeError):  # UnicodeError: a label that is empty, or over 63 letters
            raise FetchFailed(f"{shown(url)} cannot be reached: its host name has no address") from None
        if why := refusal(url, addresses, self._allow_private):
            raise UrlRefused(why)
        return parsed, addresses

    def _trust(self) -> ssl.SSLContext:
        """Read once, and not before it is needed: the system's certificates take their time."""
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        return self._tls

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        silence: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """One request to a vetted address. Each has a client of its own: a kept connection is known
        by its address only, so a second name at the same address would inherit the first one's TLS."""
        parsed, addresses = await self._vet(url)
        tls = self._trust() if parsed.scheme == "https" else _TRUSTS_NOBODY
        client = httpx.AsyncClient(verify=tls, trust_env=False, timeout=httpx.Timeout(None, read=silence))
        async with client:
            try:
                response = await _send_to_first(client, method, parsed, addresses, headers, body)
            except httpx.ReadTimeout:
                raise _silent(url, silence) from None
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                raise FetchFailed(f"{shown(url)} cannot be reached: {_words(error)}") from None
            try:
                yield response
            except httpx.ReadTimeout:
                raise _silent(url, silence) from None
            except httpx.HTTPError as error:
                raise FetchFailed(f"{shown(url)} broke off: {_words(error)}") from None
            finally:
                await response.aclose()


@dataclass(frozen=True, slots=True)
class _Wish:
    file: Sink
    limits: Limits
    conditions: Mapping[str, str]
    begun: Callable[[Answer], None]


def _heard(_answer: Answer) -> None:
    """Nobody asked to hear of it."""


def _silent(url: str, silence: float | None) -> FetchFailed:
    return FetchFailed(f"{shown(url)} said nothing for {silence:g} s", reason="too_slow")


async def _send_to_first(
    client: httpx.AsyncClient,
    method: str,
    url: httpx.URL,
    addresses: Sequence[str],
    headers: Mapping[str, str],
    body: bytes | None,
) -> httpx.Response:
    """Send to the first address that takes a connection. Once connected, nothing is sent a second time."""
    failure: httpx.ConnectError | None = None
    for address in addresses[:_ADDRESSES_TRIED]:
        request = _pinned(client, method, url, address, headers, body)
        try:
            return await client.send(request, stream=True, follow_redirects=False)
        except httpx.ConnectError as error:
            failure = error
    raise failure or httpx.ConnectError("it has no address")


def _pinned(
    client: httpx.AsyncClient,
    method: str,
    url: httpx.URL,
    address: str,
    headers: Mapping[str, str],
    body: bytes | None,
) -> httpx.Request:
    """A request that is sent to `address` and reads, inside and in TLS, as one to the URL's host."""
    own = {**headers, "Host": url.netloc.decode("ascii"), "User-Agent": "stoker"}
    request = client.build_request(method, url.copy_with(host=address), headers=own, content=body)
    host = url.raw_host.decode("ascii")
    if not _is_address(host.strip("[]")):
        request.extensions["sni_hostname"] = host
    return request


def _answer(url: str, hops: int, response: httpx.Response) -> Answer:
    told = response.headers.get("content-length", "")
    size = int(told) if told.isdecimal() else None
    return Answer(response.status_code, url, hops, size, dict(response.headers))


async def _receive(answer: Answer, response: httpx.Response, wish: _Wish) -> Fetched:
    url, most = answer.url, wish.limits.size
    if answer.unchanged and wish.conditions:
        wish.begun(answer)
        return Fetched(0, "", "", answer)
    if not response.is_success:
        raise FetchFailed(f"{shown(url)} answered {answer.status}", answer.status)
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        told = f"{shown(url)} sent a compressed body, which was not asked for"
        raise FetchFailed(told, reason="bad_answer")
    if answer.size is not None and answer.size > most:
        raise TooLarge(f"{shown(url)} is {answer.size} bytes; at most {most} are allowed")
    wish.begun(answer)
    size, digest = 0, hashlib.sha256()
    async for piece in response.aiter_raw():
        size += len(piece)
        if size > most:
            raise TooLarge(f"{shown(url)} is more than the {most} bytes that are allowed")
        digest.update(piece)
        wish.file.write(piece)
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Fetched(size, media_type, digest.hexdigest(), answer)


def _next_url(url: str, response: httpx.Response) -> str:
    try:
        return str(httpx.URL(url).join(response.headers["location"]))
    except (httpx.InvalidURL, ValueError):
        told = f"{shown(url)} redirects to something that is not a URL"
        raise FetchFailed(told, reason="redirect") from None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


__all__ = ["Answer", "Fetched", "Guard", "Limits", "Resolver", "Sink", "resolve"]
