"""Who keeps the books of a story: what agents told of their devices' time, against what the store has of it.

- A span that was acknowledged is in the store as it was told, but for one that comes a week late.
- Spans of one worker do not overlap.
- The hours' sums are the spans' sums: nothing is billed twice, nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from stoker.control.billing import PriceList
from stoker.control.store import USAGE_LIFE_S
from stoker.wire.messages import Report, Usage

PRICES = PriceList(device_second=1_000_000_007, starting_percent=50)
_ROW = "SELECT began_ms, ended_ms FROM usage WHERE owner = ? AND boot = ? AND n = ?"


class Ledger:
    def __init__(self, raw: Any, clock: Callable[[], float], fail: Callable[[str], None]) -> None:
        self._raw = raw
        self._clock = clock
        self._fail = fail
        self._waiting: dict[int, list[tuple[int, Usage]]] = {}
        self.told: dict[tuple[str, str, int], Usage] = {}

    def sent(self, link: int, report: Report) -> None:
        if isinstance(report.body, Usage):
            self._waiting.setdefault(link, []).append((report.number, report.body))
            key = report.body.owner, report.body.boot, report.body.n
            if self.told.setdefault(key, report.body) != report.body:
                self._fail(f"{report.body} was told before as {self.told[key]}")

    def acknowledged(self, link: int, number: int, poisoned: bool) -> None:
        waiting = self._waiting.get(link, [])
        self._waiting[link] = [one for one in waiting if one[0] > number]
        for sent, span in waiting:
            too_late = span.ended_ms < (self._clock() - USAGE_LIFE_S) * 1000
            if sent > number or poisoned or too_late:
                continue
            row = self._raw.execute(_ROW, (span.owner, span.boot, span.n)).fetchone()
            if row != (span.began_ms, span.ended_ms):
                self._fail(f"{span} was acknowledged, and the store has {row}")

    def check(self) -> None:
        """Once all is calm."""
        by_owner: dict[str, list[Usage]] = {}
        for span in self.told.values():
            by_owner.setdefault(span.owner, []).append(span)
        for owner, spans in by_owner.items():
            spans.sort(key=lambda span: (span.began_ms, span.n))
            for one, other in pairwise(spans):
                if one.ended_ms > other.began_ms:
                    self._fail(f"spans of {owner} overlap: {one} and {other}")
        (usage,), (bills,) = (
            self._raw.execute(f"SELECT SUM(billed_ms), SUM(nano_usd) FROM {table}").fetchall()
            for table in ("usage", "bills")
        )
        if usage != bills:
            self._fail(f"the bills say {bills}; the spans add up to {usage}")
