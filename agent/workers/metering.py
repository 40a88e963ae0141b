"""The shell of `agent.usage`: one meter with its clocks and its timer, and where its spans are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stoker.agent import usage
from stoker.agent.alarm import Alarm
from stoker.wire.messages import Usage


class Metering:
    """`wall` tells seconds since the epoch. Nothing is measured between `ended` and the next `began`."""

    def __init__(
        self, meter: usage.Meter, report: Callable[[Usage], object], wall: Callable[[], float]
    ) -> None:
        self._meter, self._report, self._wall = meter, report, wall
        self._alarm = Alarm(lambda at: self._tell(usage.Tick(at)))

    def began(self) -> None:
        """A process, or a container, was started."""
        self._tell(usage.Began(_now(), int(self._wall() * 1000)))

    def ready(self) -> None:
        self._tell(usage.Ready(_now()))

    def jobs(self, count: int) -> None:
        self._tell(usage.Jobs(_now(), count))

    def ended(self) -> None:
        self._tell(usage.Ended(_now()))

    def discard(self) -> None:
        """No timer of it rings any more."""
        self._alarm.set(None)

    def _tell(self, event: usage.Event) -> None:
        self._meter, spans = usage.step(self._meter, event)
        for span in spans:
            self._report(span)
        self._alarm.set(usage.wake_at(self._meter))


def _now() -> float:
    return asyncio.get_running_loop().time()
