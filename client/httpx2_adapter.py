"""The conversion of calls to httpx2 requests and of responses to replies, for httpx2's synchronous and
asyncio clients."""

from __future__ import annotations

import ipaddress
import os
import ssl
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from stoker.client import dotenv, pasted
from stoker.client.calls import Call, Reply
from stoker.client.errors import ClientError, Unreachable
from stoker.client.failover import AsyncFailover, Failover
from stoker.client.following import SILENCE_S

_SLACK_S = 15.0
"""A response to a long-polling call may take this much longer than the requested wait."""

DEFAULT_URL = "http://127.0.0.1:8000"
"""The address that `stoker up` serves at."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its addresses, and the options of httpx2's client for it."""

    bases: tuple[str, ...]
    verify: bool | ssl.SSLContext
    options: Mapping[str, Any]

    def open(self, transport: httpx2.BaseTransport | None = None) -> httpx2.Client:
        if len(self.bases) > 1:
            inner = transport or httpx2.HTTPTransport(verify=self.verify, trust_env=False)
            transport = Failover(self.bases, inner)
        return httpx2.Client(**self.options, verify=self.verify, base_url=self.bases[0], transport=transport)

    def open_async(self, transport: httpx2.AsyncBaseTransport | None = None) -> httpx2.AsyncClient:
        if len(self.bases) > 1:
            inner = transport or httpx2.AsyncHTTPTransport(verify=self.verify, trust_env=False)
            transport = AsyncFailover(self.bases, inner)
        return httpx2.AsyncClient(
            **self.options, verify=self.verify, base_url=self.bases[0], transport=transport
        )


def service(
    base_url: str | None, api_key: str | None, timeout_s: float, ca_file: Path | str | None
) -> Service:
    """Returns the service of these settings, whose defaults come from the environment and `.env`. `base_url`
    may name several addresses, with commas. Raises ClientError."""
    if base_url is None:
        base_url = dotenv.lookup("STOKER_URL", os.environ, Path.cwd()) or DEFAULT_URL
    if api_key is None:
        api_key = dotenv.lookup("STOKER_API_KEY", os.environ, Path.cwd())
    headers = bearer(api_key or "")
    addresses = pasted.addresses("the service's address", base_url)
    for address in filter(in_the_clear, addresses):
        warnings.warn(f"the API key goes to {address} in the clear: use https", KeyInTheClear, stacklevel=3)
    return Service(
        tuple(address.rstrip("/").removesuffix("/v2") + "/" for address in addresses),
        _trusted(addresses, ca_file),
        {"headers": headers, "timeout": timeout_s, "trust_env": False},
    )


def bearer(api_key: str) -> dict[str, str]:
    """Returns the header that carries this key. Raises ClientError for a key that no header can hold."""
    key = pasted.secret("the API key", api_key)
    if not key:
        raise ClientError("no API key: give one, or set STOKER_API_KEY in the environment or in .env")
    return {"Authorization": f"Bearer {key}"}


class KeyInTheClear(UserWarning):
    """Everybody between this machine and the service can read and use the key."""


def in_the_clear(base_url: str) -> bool:
    """Returns whether others on the network can read what is sent to this address. Loopback does not leave
    this machine."""
    try:
        url = urlsplit(base_url)
    except ValueError:
        return False  # not a URL: nothing is sent
    if url.scheme != "http" or not url.hostname or url.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(url.hostname).is_loopback
    except ValueError:
        return True


def _trusted(addresses: Sequence[str], ca_file: Path | str | None) -> bool | ssl.SSLContext:
    """Returns whom the client trusts: with addresses without TLS nobody, since reading the public authorities
    takes longer than a call."""
    if ca_file is not None:
        return _trusting(ca_file)
    plain = all(address.lower().startswith("http://") for address in addresses)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True


def _trusting(ca_file: Path | str) -> ssl.SSLContext:
    """Trusts the public authorities and those of this file."""
    context = httpx2.create_ssl_context(trust_env=False)
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ClientError(f"{ca_file} is not a file of certificate authorities: {error}") from None
    return context


def request(http: httpx2.Client | httpx2.AsyncClient, call: Call[Any]) -> httpx2.Request:
    timeout: Any = (
        call.longest_wait_ms / 1000 + _SLACK_S if call.longest_wait_ms else httpx2.USE_CLIENT_DEFAULT
    )
    return http.build_request(
        call.method,
        f"{call.under}/{call.path}",
        json=call.body,
        content=call.content,
        params=call.params,
        headers=call.headers,
        timeout=timeout,
    )


def events_request(http: httpx2.Client | httpx2.AsyncClient, call: Call[Any]) -> httpx2.Request:
    """Builds a request whose response arrives in chunks, for as long as the job lives."""
    timeout = httpx2.Timeout(http.timeout.connect, read=SILENCE_S)
    return http.build_request(call.method, f"{call.under}/{call.path}", headers=call.headers, timeout=timeout)


def reply(response: httpx2.Response) -> Reply:
    retry_after = response.headers.get("Retry-After", "")
    return Reply(response.status_code, response.reason_phrase, response.text, retry_after)


def failure(request: httpx2.Request, error: httpx2.TransportError) -> ClientError:
    """Returns Unreachable, or ClientError for a request that can never be sent."""
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)):
        return ClientError(f"no request can be sent to {request.url}: {error}")
    address = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
    return Unreachable(f"no answer from {address}: {_why(error)}")


def _why(error: BaseException) -> str:
    """Returns the message of the operating system's error, if there is one: httpx2's asyncio client hides
    that error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionError) and cause.errno is not None:
            return os.strerror(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__
