"""The shell of `agent.workers.lifecycle.usage`: a meter with its clocks, its timer, and the reports of its
spans."""

from __future__ import annotations

from collections.abc import Callable

from stoker.agent.alarm import Alarm, loop_time
from stoker.agent.workers.lifecycle import usage
from stoker.wire.messages import Usage


class Metering:
    """The metering of workers. `wall` returns seconds since the epoch. Nothing is measured between `ended`
    and the next `began`."""

    def __init__(
        self, meter: usage.Meter, report: Callable[[Usage], object], wall: Callable[[], float]
    ) -> None:
        self._meter, self._report, self._wall = meter, report, wall
        self._alarm = Alarm(lambda at: self.step(usage.Tick(at)))

    def began(self) -> None:
        """Begins to meter a process, or a container, that was started."""
        self.step(usage.Began(loop_time(), int(self._wall() * 1000)))

    def ended(self) -> None:
        self.step(usage.Ended(loop_time()))

    def step(self, event: usage.Event) -> None:
        self._meter, spans = usage.step(self._meter, event)
        for span in spans:
            self._report(span)
        self._alarm.set(self._meter.wake_at)

    def discard(self) -> None:
        """Stops its timer."""
        self._alarm.set(None)
