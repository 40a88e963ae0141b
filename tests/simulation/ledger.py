"""Who keeps the books of a story: what agents told of their devices' time, against what the store has of it.

- A span that was acknowledged is in the store as it was told, or longer; but for one that comes a week late.
- An agent tells a span in one way as long as it lives. Its disk, read by a copy of its host or by its next
  start, may tell it as it was when it was shorter: then the longest that was acknowledged stands.
- Spans of one worker do not overlap.
- The hours' sums are the spans' sums: nothing is billed twice, nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

from msgspec.structs import replace

from stoker.control.rules.billing import PriceList
from stoker.control.store import USAGE_LIFE_S
from stoker.testing.fake_spawner import PIECE
from stoker.wire.messages import Price, Report, Usage
from tests.simulation.network import Link

PRICES = PriceList(device_second=1_000_000_007, starting_percent=50)
PIECE_PRICE = Price(PIECE, 7)
_SPANS = """
SELECT COALESCE(SUM(ms), 0), COALESCE(SUM(nano_usd), 0)
FROM (SELECT billed_ms AS ms, nano_usd FROM usage UNION ALL SELECT NULL, nano_usd FROM spans)
"""
_BILLS = "SELECT COALESCE(SUM(billed_ms), 0), COALESCE(SUM(nano_usd), 0) FROM bills"
_ROW = "SELECT began_ms, ended_ms FROM usage WHERE owner = ? AND boot = ? AND n = ?"


_Key: TypeAlias = tuple[str, str, int]


class Ledger:
    def __init__(self, raw: Any, clock: Callable[[], float], fail: Callable[[str], None]) -> None:
        self._raw = raw
        self._clock = clock
        self._fail = fail
        self._waiting: dict[int, list[tuple[int, Usage]]] = {}
        self._by_host: dict[str, dict[_Key, Usage]] = {}  # by host, in the life of its agent
        self.longest: dict[_Key, Usage] = {}  # the longest
        self._stands: dict[_Key, Usage] = {}  # the longest that was acknowledged

    def sent(self, link: Link, report: Report) -> None:
        if not isinstance(report.body, Usage):
            return
        span = report.body
        self._waiting.setdefault(link.number, []).append((report.number, span))
        reported = self._by_host.setdefault(link.host, {}).setdefault(_key(span), span)
        if reported != span:
            self._fail(f"{link.host} tells {span}, and told {reported} before")
        longest = self.longest.setdefault(_key(span), span)
        if replace(span, ended_ms=longest.ended_ms) != longest:
            self._fail(f"{span} was told before as {longest}")
        self.longest[_key(span)] = max(span, longest, key=_end)

    def lost_with(self, host: str) -> None:
        """Its agent died."""
        self._by_host.pop(host, None)

    def acknowledged(self, link: int, number: int, poisoned: bool) -> None:
        waiting = self._waiting.get(link, [])
        self._waiting[link] = [one for one in waiting if one[0] > number]
        for sent, span in waiting:
            too_late = span.ended_ms < (self._clock() - USAGE_LIFE_S) * 1000
            if sent > number or poisoned or too_late:
                continue
            stands = self._stands[_key(span)] = max(span, self._stands.get(_key(span), span), key=_end)
            row = self._raw.execute(_ROW, _key(span)).fetchone()
            if row is None or row[0] != span.began_ms or not stands.ended_ms <= row[1] <= self._most(span):
                self._fail(f"{stands} was acknowledged, and the store has {row}")

    def _most(self, span: Usage) -> int:
        """What is stored may be ahead of what is acknowledged, never of what was told."""
        return self.longest[_key(span)].ended_ms

    def check(self) -> None:
        """Once all is calm."""
        by_owner: dict[str, list[Usage]] = {}
        for span in self.longest.values():
            by_owner.setdefault(span.owner, []).append(span)
        for owner, spans in by_owner.items():
            spans.sort(key=lambda span: (span.began_ms, span.n))
            for one, other in pairwise(spans):
                if one.ended_ms > other.began_ms:
                    self._fail(f"spans of {owner} overlap: {one} and {other}")
        bills = self._raw.execute(_BILLS).fetchone()
        spans = self._raw.execute(_SPANS).fetchone()
        if spans != bills:
            self._fail(f"the bills say {bills}; the spans add up to {spans}")


def _key(span: Usage) -> _Key:
    return span.owner, span.boot, span.n


def _end(span: Usage) -> int:
    return span.ended_ms
