"""How many jobs this worker takes at once: what its endpoint allows, and the handler's modifier chooses.

    ready ──asked with 1──> told with `ready`
    a job taken, a job about to end ──asked with the present number──> told with `slots`, when it changed

The agent hears of a change before it hears of the end that led to it: a slot that is free is never one that
has just gone. Asked on any thread, one at a time, in the context that setup left behind.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import copy_context

from stoker.worker.errors import describe
from stoker.worker.frames import Frame

Modifier = Callable[[int], object]

ASKED_AFTER = frozenset({"done", "failed"})
"""Before these frames are sent the modifier is asked."""


class Slots:
    """`now` is the present number, from 1 to `most`. Without a modifier, or a choice, it is `most`."""

    def __init__(self, most: int, modifier: Modifier | None) -> None:
        self.now = most if modifier is None else 1
        self.most = most
        self._modifier = modifier if most > 1 else None
        self._context = copy_context()
        self._lock = threading.Lock()
        self._complained = ""
        if self._modifier is not None:
            self.now = self._asked(self._modifier)

    def ask(self, send: Callable[[Frame], None]) -> None:
        """Asks the modifier, where there is one, and says the number if it is another now."""
        if self._modifier is None:
            return
        with self._lock:
            now = self._asked(self._modifier)
            if now != self.now:
                self.now = now
                send(Frame("slots", {"n": now}))

    def _asked(self, modifier: Modifier) -> int:
        try:
            wanted = self._context.copy().run(modifier, self.now)
        except BaseException as error:  # the handler's code may raise anything, SystemExit too
            return self._kept(f"raised {describe(error)}")
        if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
            return self._kept(f"returned {wanted!r:.80}, which is no whole number from 1")
        self._complained = ""
        return min(wanted, self.most)

    def _kept(self, what: str) -> int:
        """Said once, and not again for every job."""
        if what != self._complained:
            self._complained = what
            kept = f"this worker keeps taking {self.now} at once"
            print(f"{kept}: its concurrency_modifier {what}", file=sys.stderr)
        return self.now
