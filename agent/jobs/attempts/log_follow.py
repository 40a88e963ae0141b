"""Sends what followed attempts and workers print, as it is printed, on a stream of its own.

    wanted ──> it runs here: watched ──new lines──> LogLines ... ──it leaves its worker──> the last, `over`
       └──> not yet: watched once it begins           └── no longer wanted: forgotten

A worker is followed from its first process to its last, and the first message about it comes at once, with no
lines if there are none.

Nothing is queued here: lines are taken from the worker's log tail when the stream has room. A worker that
prints faster than that loses lines, and the line numbers show how many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from stoker.agent.host.logs import attempt_log
from stoker.agent.host.logs.engine_log import EngineLog, FollowedLog
from stoker.agent.host.logs.tail import Line, TailListener
from stoker.agent.host.logs.worker_log import WorkerLog
from stoker.agent.jobs.attempts.running_attempt import RunningAttempt
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.wire.messages import AttemptKey, LogLines, StreamHello, log_of_worker
from stoker.wire.streams import AgentLogs, HasLogs, NoLogs, StreamEnded

log = logging.getLogger(__name__)

BATCH_BYTES = 64 * 1024
AGAIN_S = 1.0

Lines = Sequence[Line]


class _Followed(Struct):
    """The log of a followed attempt or worker. `own` leaves out the lines of other jobs. `position` is the
    next line's in `printed`, `number` the one that it is sent with; they differ where lines were left out.
    `awaited`: the next message is sent even without lines."""

    key: AttemptKey
    printed: TailListener | WorkerLog | EngineLog
    own: Callable[[Lines], Lines]
    secrets: Iterable[str]
    awaited: bool = False
    stop: Callable[[], None] = lambda: None
    position: int = 0
    number: int = 0
    more: bool = True


class LogFollow:
    """Lives as long as the agent; `run` for one session. `attempts` and `workers` are those of this node.
    `wanted` are the keys that control follows, `followed` those of them that run here."""

    def __init__(self, attempts: Mapping[AttemptKey, RunningAttempt], workers: Mapping[str, Worker]) -> None:
        self._attempts, self._workers = attempts, workers
        self.wanted: frozenset[AttemptKey] = frozenset()
        self.followed: dict[AttemptKey, _Followed] = {}
        self._last: deque[LogLines] = deque()
        self._wake = asyncio.Event()
        self.pods: Callable[[str], FollowedLog | None] = lambda pod: None
        """Returns the log of a pod of this node, or None."""

    # -- what control requests

    def request(self, keys: Iterable[AttemptKey]) -> None:
        self.wanted = frozenset(keys)
        for key in self.followed.keys() - self.wanted:
            self.followed.pop(key).stop()
        for key in self.wanted - self.followed.keys():
            if (attempt := self._attempts.get(key)) is not None:
                self.begin(attempt)
        self.begin_workers()

    # -- what attempts and workers do

    def begin(self, attempt: RunningAttempt) -> None:
        if attempt.key not in self.followed and (printed := attempt.printed) is not None:
            self._follow(_Followed(attempt.key, printed, attempt.own_lines, attempt.worker.secrets))

    def begin_workers(self) -> None:
        """Follows the workers and pods that are wanted and here. To be called after some have come."""
        for key in self.wanted - self.followed.keys():
            worker = self._workers.get(key.job)
            if worker is not None and key == log_of_worker(worker.name):
                self._follow(_Followed(key, worker.log, lambda lines: lines, worker.secrets, awaited=True))
            elif key == log_of_worker(key.job) and (pod := self.pods(key.job)) is not None:
                self._follow(
                    _Followed(key, pod.log, lambda lines: lines, pod.secrets, awaited=True, more=False)
                )

    def _follow(self, followed: _Followed) -> None:
        followed.stop = followed.printed.watch(lambda: self._on_lines(followed))
        self.followed[followed.key] = followed
        self._wake.set()

    def end(self, key: AttemptKey) -> None:
        """Ends following an attempt or a worker. To be called before an attempt leaves its worker."""
        followed = self.followed.pop(key)
        followed.stop()
        while (lines := self._next(followed, whole=False)) is not None:
            self._last.append(lines)
        self._last.append(LogLines(None, key.job, key.attempt, followed.number, (), over=True))
        self._wake.set()

    def worker_gone(self, worker: str) -> None:
        if (key := log_of_worker(worker)) in self.followed:
            self.end(key)

    def _on_lines(self, followed: _Followed) -> None:
        followed.more = True
        self._wake.set()

    # -- what is sent

    def take(self) -> LogLines | None:
        """Returns the next message. Those that are followed take turns, so one that prints much does not
        delay the others."""
        if self._last:
            return self._last.popleft()
        for key, followed in list(self.followed.items()):
            if followed.more and (lines := self._next(followed)) is not None:
                self.followed[key] = self.followed.pop(key)
                return lines
        return None

    def _next(self, followed: _Followed, *, whole: bool = True) -> LogLines | None:
        first, printed = followed.printed.after(followed.position, whole=whole)
        batch = _fitting(printed)
        followed.more = len(printed) > len(batch)
        if not batch and not followed.awaited:
            return None
        followed.awaited = False
        key, number = followed.key, followed.number + first - followed.position
        own = followed.own(batch)
        texts = attempt_log.cleaned([line.text for line in own], followed.secrets)
        followed.position, followed.number = first + len(batch), number + len(own)
        times = tuple(line.at_ms for line in own)
        return LogLines(None, key.job, key.attempt, number, texts, at_ms=times, more=followed.more)

    # -- the stream

    async def run(self, stream: HasLogs, hello: StreamHello) -> None:
        """Runs for one session, until cancelled. A stream that breaks is opened again; returns where control
        has no streams of logs."""
        while True:
            try:
                await self._once(await stream.open_logs(), hello)
            except NoLogs:
                log.info("this control follows no logs")
                return
            except StreamEnded as ended:
                log.info("the stream of logs is over: %s", ended)
            await asyncio.sleep(AGAIN_S)

    async def _once(self, stream: AgentLogs, hello: StreamHello) -> None:
        reading = asyncio.create_task(self._read(stream), name="logs wanted")
        writing = asyncio.create_task(self._write(stream, hello), name="log lines")
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stream.end("the session is over")
            reading.cancel()
            writing.cancel()
            ends = await asyncio.gather(reading, writing, return_exceptions=True)
            self.request(())
            self._last.clear()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _read(self, stream: AgentLogs) -> None:
        while True:
            self.request((await stream.receive()).attempts)

    async def _write(self, stream: AgentLogs, hello: StreamHello) -> None:
        await stream.send(LogLines(hello))
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (lines := self.take()) is not None:
                await stream.send(lines)
                await asyncio.sleep(0)  # others first: reports, frames


def _fitting(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Returns the first lines that fit in one message, at least one."""
    size = 0
    for n, line in enumerate(lines):
        size += 4 * min(len(line.text), attempt_log.LINE_MAX) + 16
        if n and size > BATCH_BYTES:
            return lines[:n]
    return lines
