"""The headers that a request takes to its worker, and a response to its caller. Pure.

| header | what happens |
|---|---|
| hop-by-hop: Connection and what it names, Keep-Alive, TE, Transfer-Encoding, Upgrade | dropped |
| Authorization | dropped: it holds the API key, which is checked before |
| Expect | dropped: this server has answered it |
| X-Runpod-Worker-Id | dropped from requests; set on every response to the worker's id |
| X-Forwarded-For, -Host, -Proto, -Prefix | replaced by what this server knows of the caller |
| Forwarded, X-Real-IP, CF-Connecting-IP and whatever else names a caller | dropped from requests |
| Date | dropped from responses: this server sets its own |
| Content-Length of a response without a body (204, 304) | dropped |
| what rules a browser's whole origin | `control.http.gateway.shared_origin` |
| every other, Host among them | as it came, in its order |

A name of a request is compared as CGI and WSGI read it, who take X_Forwarded_For for X-Forwarded-For. The
framing of bodies is not here: Content-Length stays, and `framing` says what a body without one needs. Of
the trailers, all those are dropped that would be dropped as headers, or that frame or route a message.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from stoker.control.http.gateway.shared_origin import confined

Header = tuple[bytes, bytes]

WORKER_ID = b"x-runpod-worker-id"

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)

_OURS = frozenset({b"authorization", b"expect", WORKER_ID})

_CALLER = frozenset(
    {
        b"cf-connecting-ip",
        b"cf-connecting-ipv6",
        b"cf-pseudo-ipv4",
        b"client-ip",
        b"do-connecting-ip",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"forwarded",
        b"forwarded-for",
        b"front-end-https",
        b"proxy-client-ip",
        b"remote-addr",
        b"true-client-ip",
        b"wl-proxy-client-ip",
        b"x-appengine-remote-addr",
        b"x-appengine-user-ip",
        b"x-azure-clientip",
        b"x-azure-socketip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-envoy-external-address",
        b"x-host",
        b"x-nf-client-connection-ip",
        b"x-original-forwarded-for",
        b"x-original-host",
        b"x-original-url",
        b"x-originating-ip",
        b"x-proxyuser-ip",
        b"x-real-ip",
        b"x-remote-addr",
        b"x-remote-ip",
        b"x-rewrite-url",
        b"x-url-scheme",
        b"x-vercel-forwarded-for",
    }
)
"""What servers and frameworks take for a proxy's word about who calls, how, and for what."""

_FORWARDED = b"x-forwarded"
"""X-Forwarded-For, -Port, -User and all others of this family."""

_BODILESS = (204, 304)

_NEVER_NAMED = frozenset({b"content-length", b"host"})
"""What Connection cannot take away: without it the message would mean something else."""

_AS_VARIABLE = bytes(one if chr(one).isalnum() and one < 128 else ord("-") for one in range(256))
"""CGI makes the same character of everything that is not a letter or a digit; some servers do."""


class CallerFacts(Struct, frozen=True):
    """The facts about a caller that its worker is told. `prefix` is the part of the path that the worker does
    not see."""

    address: str
    scheme: str
    prefix: str = ""


def to_worker(headers: Sequence[Header], caller: CallerFacts) -> list[Header]:
    """Returns the headers of a request without a body's framing. Names are in lower case."""
    named = _named(headers)
    kept = [header for header in headers if header[0] not in named and not _is_ours(header[0])]
    host = next((value for name, value in headers if name == b"host"), b"")
    added: list[Header] = [
        (b"x-forwarded-for", caller.address.encode("latin-1", "replace")),
        (b"x-forwarded-proto", caller.scheme.encode("latin-1", "replace")),
    ]
    if host:
        added.append((b"x-forwarded-host", host))
    if caller.prefix:
        added.append((b"x-forwarded-prefix", caller.prefix.encode("latin-1", "replace")))
    return kept + added


def _is_ours(name: bytes) -> bool:
    """Returns whether a request may not bring the header to the worker, however its name is written."""
    plain = name.translate(_AS_VARIABLE)
    if plain in HOP_BY_HOP or plain in _OURS or plain in _CALLER or plain.startswith(_FORWARDED):
        return True
    return plain != name and plain in _NEVER_NAMED


def framing(headers: Sequence[Header]) -> list[Header]:
    """Returns what shows the worker where the body ends, apart from a Content-Length: nothing, or that the
    body is chunked; and that the caller takes trailers, if it does."""
    added: list[Header] = []
    names = {name for name, _ in headers}
    if b"transfer-encoding" in names and b"content-length" not in names:
        added.append((b"transfer-encoding", b"chunked"))
    if any(name == b"te" and b"trailers" in _tokens(value) for name, value in headers):
        added += [(b"te", b"trailers"), (b"connection", b"TE")]
    return added


def trailers(fields: Sequence[Header]) -> list[Header]:
    """Returns the trailers that are passed on, either way."""
    return [one for one in fields if not _is_ours(one[0]) and one[0] not in _NEVER_NAMED]


def to_caller(headers: Sequence[Header], worker: str, status: int = 200, prefix: str = "") -> list[Header]:
    """Returns the headers of a response whose endpoint is at this prefix. Names are in lower case."""
    dropped = HOP_BY_HOP | _named(headers) | {WORKER_ID, b"date"}
    if status in _BODILESS or any(name == b"transfer-encoding" for name, _ in headers):
        dropped |= {b"content-length"}  # it has no body, or the encoding overrides it (RFC 9112, 6.3)
    kept = [header for header in headers if header[0] not in dropped]
    return [*confined(kept, prefix), (WORKER_ID, worker.encode())]


def to_switched(headers: Sequence[Header], worker: str, prefix: str = "") -> list[Header]:
    """Returns the headers of a 101, with those that switch the protocol."""
    kept = [header for header in headers if header[0] != WORKER_ID]
    return [*confined(kept, prefix), (WORKER_ID, worker.encode())]


def has_body(method: bytes, status: int) -> bool:
    """Returns whether a response to this method, with this status, may have a body."""
    return method != b"HEAD" and status not in _BODILESS


def _named(headers: Sequence[Header]) -> frozenset[bytes]:
    """Returns the header names that Connection lists, which are for the next hop alone."""
    lists = [value for name, value in headers if name == b"connection"]
    return frozenset(token for value in lists for token in _tokens(value)) - _NEVER_NAMED


def _tokens(value: bytes) -> list[bytes]:
    return [token.strip().lower() for token in value.split(b",")]
