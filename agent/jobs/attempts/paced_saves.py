"""The shell of `save_pace`: has the newest small save of an attempt wait for its time."""

from __future__ import annotations

from collections.abc import Callable

from stoker.agent.alarm import Alarm, loop_time
from stoker.agent.jobs.attempts.chunk_stream import Piece
from stoker.agent.jobs.attempts.save_pace import SavePace


class PacedSaves:
    """The small saves of one attempt. `report` reports a save in its turn."""

    def __init__(self, report: Callable[[Piece], None]) -> None:
        self._report = report
        self._pace = SavePace(at=loop_time())
        self._held: Piece | None = None
        self._alarm = Alarm(self._on_time)

    def add(self, save: Piece) -> None:
        """Reports the save, or keeps it in place of the one that waits."""
        self._offer(save, loop_time())

    def flush(self) -> None:
        """Reports the save that waits now, and not in its time."""
        held = self._held
        self.drop()
        if held is not None:
            self._report(held)

    def end(self, *, of_use: bool) -> None:
        """Reports the save that waits if it is of use, and drops it otherwise: no more saves come."""
        if of_use:
            self.flush()
        else:
            self.drop()

    def drop(self) -> None:
        """Drops the save that waits, which nobody needs."""
        self._held = None
        self._alarm.set(None)

    def _on_time(self, at: float) -> None:
        if self._held is not None:
            self._offer(self._held, at)

    def _offer(self, save: Piece, now: float) -> None:
        assert isinstance(save.body, bytes)
        self._pace, again_at = self._pace.offered(len(save.body), now)
        if again_at is None:
            self.drop()
            self._report(save)
        else:
            self._held = save
            self._alarm.set(again_at)
