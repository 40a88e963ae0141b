"""Keeps what a worker says to a browser within the worker's own endpoint. Pure.

In the path form all endpoints and the platform's own pages are one origin to a browser, and some headers of a
response are rules for a whole origin. So below a prefix:

| header | what happens |
|---|---|
| Service-Worker-Allowed, Clear-Site-Data, Alt-Svc and the others of RULES | dropped |
| Set-Cookie | its Path is moved below the prefix; one that must be for `/` (`__Host-`) is dropped |

By name an endpoint is an origin of its own. In both forms the Domain of a cookie is dropped: it would send
the cookie to other endpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

Header = tuple[bytes, bytes]

RULES = frozenset(
    {
        b"accept-ch",
        b"alt-svc",
        b"clear-site-data",
        b"critical-ch",
        b"expect-ct",
        b"nel",
        b"origin-agent-cluster",
        b"public-key-pins",
        b"public-key-pins-report-only",
        b"report-to",
        b"sec-session-registration",
        b"secure-session-registration",
        b"service-worker-allowed",
        b"set-cookie2",
        b"set-login",
        b"strict-transport-security",
        b"use-as-dictionary",
    }
)
"""What a browser applies to every page of the origin, whichever of them sent it."""


def confined(headers: Sequence[Header], prefix: str) -> list[Header]:
    """Returns the headers of a response whose endpoint is at this prefix of its origin. With "", the endpoint
    has its own origin."""
    below = prefix.encode("latin-1", "replace")
    kept = []
    for name, value in headers:
        if name == b"set-cookie":
            if (cookie := _cookie(value, below)) is not None:
                kept.append((name, cookie))
        elif not (below and name in RULES):
            kept.append((name, value))
    return kept


def rules_others(raw_path: bytes, prefix: str, headers: Sequence[Header]) -> bool:
    """Returns whether a browser requests a service worker that could rule other endpoints' pages: a service
    worker whose address is the prefix itself rules everything beside it."""
    at_prefix = bool(prefix) and raw_path == prefix.encode("latin-1", "replace")
    return at_prefix and any(name == b"service-worker" for name, _ in headers)


def _cookie(value: bytes, prefix: bytes) -> bytes | None:
    """Returns the cookie kept within the prefix; None where that cannot be done."""
    pair, *attributes = value.split(b";")
    if prefix and pair.strip().lower().startswith(b"__host-"):
        return None
    path, kept = b"", [pair]
    for attribute in attributes:
        name, _, text = attribute.partition(b"=")
        match name.strip().lower():
            case b"domain":
                continue
            case b"path" if prefix:
                path = text.strip()
            case _:
                kept.append(attribute)
    if prefix:
        kept.append(b" Path=" + _below(path, prefix))
    return b";".join(kept)


def _below(path: bytes, prefix: bytes) -> bytes:
    """Returns the path below the prefix, which a worker may know and have put before the path itself."""
    if path == prefix or path.startswith(prefix + b"/"):
        return path
    return prefix + path if path.startswith(b"/") and path != b"/" else prefix
