"""What the cache of inputs keeps, for how long, and what goes first. Pure: time is an argument.

Contents are known by their digest; a URL leads to one. What a server says about keeping is obeyed:

    no-store, private        not kept: whoever was waiting for it gets it, nobody else
    max-age=N                served without asking for N seconds (a day at most), unless it was redirected
    ETag, Last-Modified      kept, and asked about before each use that is not within max-age
    none of these            not worth keeping: nobody could say later whether it still holds

Times are seconds of the wall clock, for they outlive the agent. A clock that was set back makes nothing
fresh for longer: what lies in the future is asked about.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

FRESH_MAX_S = 86_400.0
URLS_MAX = 10_000
BLOCK = 4096
"""The least that a content counts for: a million empty ones fill a disk, too."""

_VALIDATOR_MAX = 1024
_MAX_AGE = re.compile(r'max-age="?(\d{1,18})"?\Z')


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a URL. `source` is the digest of the address that it came from after redirects."""

    sha256: str
    size: int
    source: str
    etag: str
    last_modified: str
    asked_at: float
    fresh_until: float


@dataclass(frozen=True, slots=True)
class Content:
    size: int
    used_at: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`serve` what is here, `ask` whether it still holds (with these headers), or `fetch` it."""

    act: Literal["serve", "ask", "fetch"]
    reason: str
    conditions: Mapping[str, str] = field(default_factory=dict)


def plan(known: Known | None, now: float) -> Plan:
    if known is None:
        return Plan("fetch", "it is not here")
    if known.asked_at <= now < known.fresh_until:
        return Plan("serve", f"it is fresh for another {known.fresh_until - now:.0f} s")
    conditions = {"If-None-Match": known.etag, "If-Modified-Since": known.last_modified}
    conditions = {name: value for name, value in conditions.items() if value}
    if not conditions:
        return Plan("fetch", "it is no longer fresh, and nothing to ask with came with it")
    return Plan("ask", "it is no longer fresh", conditions)


def keep(
    headers: Mapping[str, str], sha256: str, size: int, source: str, *, redirected: bool, now: float
) -> Known | None:
    """What to remember of an answer, with lower-case header names; None where it is not to be kept."""
    words = _words(headers.get("cache-control", ""))
    if words & {"no-store", "private"}:
        return None
    fresh_s = 0.0 if redirected or "no-cache" in words else _fresh_s(words, headers.get("age", ""))
    etag, modified = (_validator(headers.get(name, "")) for name in ("etag", "last-modified"))
    if not (fresh_s or etag or modified):
        return None
    return Known(sha256, size, source, etag, modified, now, now + fresh_s)


def renew(known: Known, headers: Mapping[str, str], *, redirected: bool, now: float) -> Known | None:
    """After the answer that nothing has changed, which may leave out what was said before."""
    said = {"etag": known.etag, "last-modified": known.last_modified, **headers}
    return keep(said, known.sha256, known.size, known.source, redirected=redirected, now=now)


def evicted(contents: Mapping[str, Content], busy: Collection[str], most: int) -> tuple[str, ...]:
    """The digests that go, so that the others hold `most` bytes at most: least recently used first, and no
    busy one, even if then it is too much."""
    over = sum(_weight(content) for content in contents.values()) - most
    going = []
    for digest, content in sorted(contents.items(), key=lambda item: (item[1].used_at, item[0])):
        if over <= 0:
            break
        if digest not in busy:
            going.append(digest)
            over -= _weight(content)
    return tuple(going)


def forgotten(urls: Mapping[str, Known], most: int = URLS_MAX) -> tuple[str, ...]:
    """The URLs that go, so that `most` are left: those that were not asked about for longest."""
    by_age = sorted(urls, key=lambda url: (urls[url].asked_at, url))
    return tuple(by_age[: max(0, len(urls) - most)])


def _weight(content: Content) -> int:
    return max(content.size, BLOCK)


def _words(cache_control: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in cache_control.split(","))


def _fresh_s(words: Collection[str], age: str) -> float:
    """The shortest max-age counts, less the time that the answer had been on its way from cache to cache."""
    found = [int(match[1]) for word in words if (match := _MAX_AGE.match(word))]
    if not found or (age and not (age.isascii() and age.isdigit() and len(age) < 19)):
        return 0.0
    return min(max(float(min(found) - int(age or 0)), 0.0), FRESH_MAX_S)


def _validator(value: str) -> str:
    """What can be sent back as it came."""
    return value if value.isascii() and value.isprintable() and len(value) <= _VALIDATOR_MAX else ""
