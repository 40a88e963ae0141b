"""Sends what followed attempts print, as it is printed, on a stream of its own beside the session's.

    wanted ──> it runs here: watched ──new lines──> LogLines ... ──it leaves its worker──> the last, `over`
       └──> not yet: watched once it begins           └── no longer wanted: forgotten

Nothing piles up here: the lines lie in the worker's own tail, and are taken from there when the stream has
room. A worker that prints faster than that loses lines, and the numbers say how many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stoker.agent import attempt_log
from stoker.agent.held_attempt import Attempt
from stoker.agent.seams import Listener
from stoker.wire.messages import AttemptKey, LogHello, LogLines
from stoker.wire.streams import AgentLogs, HasLogs, NoLogs, StreamEnded

log = logging.getLogger(__name__)

BATCH_BYTES = 64 * 1024
AGAIN_S = 1.0


@dataclass(slots=True)
class _Followed:
    """`place` is that of the next line in the worker's tail, `number` what it gets; they differ where lines
    of other jobs are left out."""

    attempt: Attempt
    printed: Listener
    stop: Callable[[], None]
    place: int = 0
    number: int = 0
    more: bool = True


class LogFollow:
    """`find` is an attempt that is here. Lives as long as the agent; `run` for one session."""

    def __init__(self, find: Callable[[AttemptKey], Attempt | None]) -> None:
        self._find = find
        self._wanted: frozenset[AttemptKey] = frozenset()
        self._followed: dict[AttemptKey, _Followed] = {}
        self._last: deque[LogLines] = deque()
        self._wake = asyncio.Event()

    # -- what control wants

    def want(self, keys: Iterable[AttemptKey]) -> None:
        self._wanted = frozenset(keys)
        for key in self._followed.keys() - self._wanted:
            self._followed.pop(key).stop()
        for key in self._wanted - self._followed.keys():
            if (attempt := self._find(key)) is not None:
                self.begun(attempt)

    # -- what attempts do

    def begun(self, attempt: Attempt) -> None:
        printed = attempt.printed
        if attempt.key not in self._wanted or attempt.key in self._followed or printed is None:
            return
        followed = _Followed(attempt, printed, lambda: None)
        followed.stop = printed.watch(lambda: self._rings(followed))
        self._followed[attempt.key] = followed
        self._wake.set()

    def leaves(self, attempt: Attempt) -> None:
        """To be called while what it printed can still be asked for."""
        followed = self._followed.pop(attempt.key, None)
        if followed is None:
            return
        followed.stop()
        while (lines := self._next(followed, whole=False)) is not None:
            self._last.append(lines)
        self._last.append(LogLines(None, *_about(followed), followed.number, (), over=True))
        self._wake.set()

    def _rings(self, followed: _Followed) -> None:
        followed.more = True
        self._wake.set()

    # -- what is sent

    def take(self) -> LogLines | None:
        """The next message. A flood of one attempt holds the others up by no more than a message each."""
        if self._last:
            return self._last.popleft()
        for key, followed in list(self._followed.items()):
            if followed.more and (lines := self._next(followed)) is not None:
                self._followed[key] = self._followed.pop(key)
                return lines
        return None

    def _next(self, followed: _Followed, *, whole: bool = True) -> LogLines | None:
        first, printed = followed.printed.after(followed.place, whole=whole)
        batch = _fitting(printed)
        followed.more = len(printed) > len(batch)
        if not batch:
            return None
        number = followed.number + first - followed.place
        attempt = followed.attempt
        own = attempt_log.cleaned(attempt.own(batch), attempt.worker.secrets)
        followed.place, followed.number = first + len(batch), number + len(own)
        return LogLines(None, *_about(followed), number, own)

    # -- the stream

    async def run(self, stream: HasLogs, hello: LogHello) -> None:
        """For one session, until it is cancelled. A stream of logs that breaks is opened again; where control
        knows of none, logs are not followed."""
        while True:
            try:
                await self._once(await stream.open_logs(), hello)
            except NoLogs:
                log.info("this control follows no logs")
                return
            except StreamEnded as ended:
                log.info("the stream of logs is over: %s", ended)
            await asyncio.sleep(AGAIN_S)

    async def _once(self, stream: AgentLogs, hello: LogHello) -> None:
        reading = asyncio.create_task(self._read(stream), name="logs wanted")
        writing = asyncio.create_task(self._write(stream, hello), name="log lines")
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stream.end("the session is over")
            reading.cancel()
            writing.cancel()
            ends = await asyncio.gather(reading, writing, return_exceptions=True)
            self.want(())
            self._last.clear()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _read(self, stream: AgentLogs) -> None:
        while True:
            self.want((await stream.receive()).attempts)

    async def _write(self, stream: AgentLogs, hello: LogHello) -> None:
        await stream.send(LogLines(hello))
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (lines := self.take()) is not None:
                await stream.send(lines)
                await asyncio.sleep(0)  # others first: reports, frames


def _fitting(lines: tuple[str, ...]) -> tuple[str, ...]:
    """As many of the first as make up one message, at least one."""
    size = 0
    for n, line in enumerate(lines):
        size += 4 * min(len(line), attempt_log.LINE_MAX) + 8
        if n and size > BATCH_BYTES:
            return lines[:n]
    return lines


def _about(followed: _Followed) -> tuple[str, int]:
    return followed.attempt.key.job, followed.attempt.key.attempt
