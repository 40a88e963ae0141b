"""Decides what the cache of inputs stores, for how long, and what is evicted. Pure: time is an argument.

Contents are identified by their digest; each URL refers to one. The server's headers are obeyed:

    no-store, private        not stored: only the requests that wait for the transfer get it
    max-age=N                served without a request for N seconds (24 hours at most), unless redirected
    ETag, Last-Modified      stored, and revalidated before each use after max-age
    none of these            not stored, because it could not be revalidated

Times are in seconds of the wall clock, because they are saved. If the clock was set back, contents do not
stay fresh for longer: those with a time in the future are revalidated.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct, field

FRESH_MAX_S = 86_400.0
URLS_MAX = 10_000
BLOCK = 4096
"""The least size that a content counts with: a million empty files fill a disk, too."""

_VALIDATOR_MAX = 1024
_MAX_AGE = re.compile(r'max-age="?(\d{1,18})"?\Z')


class KnownUrl(Struct, frozen=True):
    """The facts that are stored about a URL. `source` is the digest of the address that answered, after
    redirects. `asked_at` is when the URL was last fetched or revalidated."""

    sha256: str
    size: int
    source: str
    etag: str
    last_modified: str
    asked_at: float
    fresh_until: float


class Content(Struct, frozen=True):
    size: int
    used_at: float


class CacheDecision(Struct, frozen=True):
    """The decision about a stored input: `serve` the stored content, `revalidate` it with these headers, or
    `fetch` it."""

    act: Literal["serve", "revalidate", "fetch"]
    reason: str
    conditions: Mapping[str, str] = field(default_factory=dict)


def plan(known: KnownUrl | None, now: float) -> CacheDecision:
    if known is None:
        return CacheDecision("fetch", "it is not here")
    if known.asked_at <= now < known.fresh_until:
        return CacheDecision("serve", f"it is fresh for another {known.fresh_until - now:.0f} s")
    conditions = {"If-None-Match": known.etag, "If-Modified-Since": known.last_modified}
    conditions = {name: value for name, value in conditions.items() if value}
    if not conditions:
        return CacheDecision("fetch", "it is no longer fresh, and has neither ETag nor Last-Modified")
    return CacheDecision("revalidate", "it is no longer fresh", conditions)


def keep(
    headers: Mapping[str, str], sha256: str, size: int, source: str, *, redirected: bool, now: float
) -> KnownUrl | None:
    """Returns what to store about an answer, or None if it must not be stored. Header names are
    lower-case."""
    directives = frozenset(part.strip().lower() for part in headers.get("cache-control", "").split(","))
    if directives & {"no-store", "private"}:
        return None
    fresh_s = 0.0 if redirected or "no-cache" in directives else _fresh_s(directives, headers.get("age", ""))
    etag, modified = (_validator(headers.get(name, "")) for name in ("etag", "last-modified"))
    if not (fresh_s or etag or modified):
        return None
    return KnownUrl(sha256, size, source, etag, modified, now, now + fresh_s)


def renew(known: KnownUrl, headers: Mapping[str, str], *, redirected: bool, now: float) -> KnownUrl | None:
    """Returns what `keep` does, after the answer that nothing has changed, which may leave out headers sent
    before."""
    merged = {"etag": known.etag, "last-modified": known.last_modified, **headers}
    return keep(merged, known.sha256, known.size, known.source, redirected=redirected, now=now)


def evicted(contents: Mapping[str, Content], busy: Collection[str], most_bytes: int) -> tuple[str, ...]:
    """Returns the digests to remove so that at most `most_bytes` are left, least recently used first.
    Contents in use are never removed, even if more is left then."""
    over = sum(_weight(content) for content in contents.values()) - most_bytes
    removed = []
    for digest, content in sorted(contents.items(), key=lambda item: (item[1].used_at, item[0])):
        if over <= 0:
            break
        if digest not in busy:
            removed.append(digest)
            over -= _weight(content)
    return tuple(removed)


def surplus_urls(urls: Mapping[str, KnownUrl], most: int = URLS_MAX) -> tuple[str, ...]:
    """Returns the URLs to remove so that `most` are left, those first that were revalidated longest ago."""
    by_age = sorted(urls, key=lambda url: (urls[url].asked_at, url))
    return tuple(by_age[: max(0, len(urls) - most)])


def _weight(content: Content) -> int:
    return max(content.size, BLOCK)


def _fresh_s(directives: Collection[str], age: str) -> float:
    """Returns the shortest max-age, less the age that the answer already had in other caches."""
    found = [int(match[1]) for directive in directives if (match := _MAX_AGE.match(directive))]
    if not found or (age and not (age.isascii() and age.isdigit() and len(age) < 19)):
        return 0.0
    return min(max(float(min(found) - int(age or 0)), 0.0), FRESH_MAX_S)


def _validator(value: str) -> str:
    """Returns the value if it can be sent back unchanged, or else ""."""
    return value if value.isascii() and value.isprintable() and len(value) <= _VALIDATOR_MAX else ""
