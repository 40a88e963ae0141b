"""Which headers a request takes to its worker, and a response to its caller. Pure.

| header | what happens |
|---|---|
| hop-by-hop: Connection and what it names, Keep-Alive, TE, Transfer-Encoding, Upgrade | dropped |
| Authorization | dropped: it holds the API key, which is checked before |
| Expect | dropped: this server has answered it |
| X-Runpod-Worker-Id | dropped from requests; set on every response to the worker's id |
| X-Forwarded-For, -Host, -Proto, -Prefix, Forwarded | replaced by what this server knows of the caller |
| Date | dropped from responses: this server sets its own |
| every other, Host among them | as it came, in its order |

The framing of bodies is not here: Content-Length stays, and `framing` says what a body without one needs. Of
the trailers, all those are dropped that would be dropped as headers, or that frame or route a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

_OURS = frozenset(
    {
        b"authorization",
        b"expect",
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-prefix",
        b"x-forwarded-proto",
        WORKER_ID,
    }
)

_NEVER_NAMED = frozenset({b"content-length", b"host"})
"""What Connection cannot take away: without it the message would mean something else."""


@dataclass(frozen=True, slots=True)
class CallerFacts:
    """`prefix` is the part of the path that the worker does not see."""

    address: str
    scheme: str
    prefix: str = ""


def to_worker(headers: Sequence[Header], caller: CallerFacts) -> list[Header]:
    """The headers of a request without a body's framing. Names are in lower case."""
    dropped = HOP_BY_HOP | _named(headers) | _OURS
    kept = [header for header in headers if header[0] not in dropped]
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


def framing(headers: Sequence[Header]) -> list[Header]:
    """What shows the worker where the body ends, apart from a Content-Length: nothing, or that it is chunked;
    and that the caller takes trailers, if it does."""
    added: list[Header] = []
    names = {name for name, _ in headers}
    if b"transfer-encoding" in names and b"content-length" not in names:
        added.append((b"transfer-encoding", b"chunked"))
    if any(name == b"te" and b"trailers" in _tokens(value) for name, value in headers):
        added += [(b"te", b"trailers"), (b"connection", b"TE")]
    return added


def trailers(fields: Sequence[Header]) -> list[Header]:
    """The trailers that are passed on, either way."""
    dropped = HOP_BY_HOP | _OURS | _NEVER_NAMED
    return [field for field in fields if field[0] not in dropped]


def to_caller(headers: Sequence[Header], worker: str) -> list[Header]:
    """The headers of a response. Names are in lower case."""
    dropped = HOP_BY_HOP | _named(headers) | {WORKER_ID, b"date"}
    if any(name == b"transfer-encoding" for name, _ in headers):
        dropped |= {b"content-length"}  # the encoding overrides it (RFC 9112, 6.3)
    kept = [header for header in headers if header[0] not in dropped]
    return [*kept, (WORKER_ID, worker.encode())]


def _named(headers: Sequence[Header]) -> frozenset[bytes]:
    """What Connection names: it is for the next hop alone."""
    lists = [value for name, value in headers if name == b"connection"]
    return frozenset(token for value in lists for token in _tokens(value)) - _NEVER_NAMED


def _tokens(value: bytes) -> list[bytes]:
    return [token.strip().lower() for token in value.split(b",")]
