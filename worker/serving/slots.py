"""The number of jobs this worker takes at once: the handler's modifier chooses, up to the endpoint's limit.

    ready ──modifier(1)──> sent with `ready`
    a job taken, a job about to end ──modifier(the present number)──> sent with `slots`, when it changed

The agent receives a change before it receives the end that led to it: it never gives a job to a slot that has
just ended. The modifier is called on any thread, one call at a time, in the context that setup left behind.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import copy_context

from stoker.worker.errors import describe
from stoker.worker.frames import Frame

Modifier = Callable[[int], object]

ENDS = frozenset({"done", "failed"})
"""The modifier is called before these frames are sent."""


class Slots:
    """The slots of this worker. `now` is the present number, from 1 to `most`. Without a modifier, or a
    choice, `now` is `most`."""

    def __init__(self, most: int, modifier: Modifier | None) -> None:
        self.now = most if modifier is None else 1
        self.most = most
        self._modifier = modifier if most > 1 else None
        self._context = copy_context()
        self._lock = threading.Lock()
        self._last_problem = ""
        if self._modifier is not None:
            self.now = self._wanted(self._modifier)

    def modify(self, send: Callable[[Frame], None]) -> None:
        """Calls the modifier, if there is one, and sends the number if it has changed."""
        if self._modifier is None:
            return
        with self._lock:
            now = self._wanted(self._modifier)
            if now != self.now:
                self.now = now
                send(Frame("slots", {"n": now}))

    def _wanted(self, modifier: Modifier) -> int:
        try:
            wanted = self._context.copy().run(modifier, self.now)
        except BaseException as error:  # the handler's code may raise anything, SystemExit too
            return self._unchanged(f"raised {describe(error)}")
        if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
            return self._unchanged(f"returned {wanted!r:.80}, which is not a whole number from 1")
        self._last_problem = ""
        return min(wanted, self.most)

    def _unchanged(self, what: str) -> int:
        """Prints a problem once, not for every job."""
        if what != self._last_problem:
            self._last_problem = what
            kept = f"this worker keeps taking {self.now} at once"
            print(f"{kept}: its concurrency_modifier {what}", file=sys.stderr)
        return self.now
