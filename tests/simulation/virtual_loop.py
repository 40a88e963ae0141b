"""An asyncio loop in which time is virtual, order is drawn from a seed, and a process can die at once.

- `time()` is a number. When nothing is ready, it jumps to the next timer; when there is no timer either,
  the run is stuck and says so.
- Callbacks that are ready together run in an order drawn from the seed.
- Threads, sockets, pipes and subprocesses raise: whoever needs one in a shell has missed a seam.
- Every callback belongs to the `Process` whose context made it. `kill` drops a process's callbacks without
  running any `finally`: its tasks simply never go on, as after a SIGKILL. (Cancellation is not a crash.)
  `freeze` holds them back until `thaw`, as after a SIGSTOP.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import selectors
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from random import Random
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class Stuck(Exception):
    """Nothing is ready, no timer is set, and the story has not ended."""


class Process:
    """One simulated operating-system process: whatever runs in its context dies with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False

    def __repr__(self) -> str:
        return f"<process {self.name}{' dead' if self.dead else ''}>"


_process: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process | None:
    return _process.get()


class _NoSelector(selectors.SelectSelector):
    """Never asked: the loop below has no descriptors to wait for."""

    def select(self, timeout: float | None = None) -> NoReturn:
        raise RuntimeError("somebody waits for a descriptor in the simulation: a seam is missing")


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. `steps` counts callbacks run, `limit` bounds them."""

    def __init__(self, seed: int, *, limit: int = 2_000_000) -> None:
        super().__init__(_NoSelector())
        self._now = 0.0
        self._draw = Random(seed).random
        self.steps = 0
        self.limit = limit
        self.over = False
        self.failure: BaseException | None = None
        """Whoever sets it ends the run with it, wherever it was noticed."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._frozen: dict[Process, list[asyncio.Handle]] = {}
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """One turn, as asyncio's own, but for the time, the order, and processes that are dead or frozen."""
        self._take_due()
        ready = list(self._ready)  # type: ignore[attr-defined]
        self._ready.clear()  # type: ignore[attr-defined]
        if len(ready) > 1:
            self._shuffle(ready)
        self.steps += len(ready)
        if self.steps > self.limit:
            raise Stuck(f"over {self.limit} callbacks at {self.time():.3f} s")
        for handle in ready:
            if handle._cancelled:
                continue
            process = handle._context.get(_process)  # type: ignore[attr-defined]
            if process is None or not (process.dead or process in self._frozen):
                handle._run()
            elif not process.dead:
                self._frozen[process].append(handle)
        if self.failure is not None and not self.over:
            raise self.failure

    def _take_due(self) -> None:
        """Moves what is due to the ready queue; where that is empty, time jumps to the next timer first."""
        scheduled = self._scheduled  # type: ignore[attr-defined]
        if self._timer_cancelled_count > 200 and self._timer_cancelled_count * 2 > len(scheduled):  # type: ignore[attr-defined]
            scheduled[:] = [timer for timer in scheduled if not timer._cancelled]
            heapq.heapify(scheduled)
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0]._cancelled:
            self._pop()
        if not self._ready and not self._stopping:  # type: ignore[attr-defined]
            if not scheduled:
                raise Stuck("nothing is ready and no timer is set")
            self._now = max(self._now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._now:
            self._ready.append(self._pop())  # type: ignore[attr-defined]

    def _pop(self) -> asyncio.TimerHandle:
        timer: asyncio.TimerHandle = heapq.heappop(self._scheduled)  # type: ignore[attr-defined]
        timer._scheduled = False  # type: ignore[attr-defined]
        if timer._cancelled:  # type: ignore[attr-defined]
            self._timer_cancelled_count -= 1
        return timer

    def _shuffle(self, ready: list[asyncio.Handle]) -> None:
        """As Random.shuffle, in a third of its time."""
        draw = self._draw
        for last in range(len(ready) - 1, 0, -1):
            other = int(draw() * (last + 1))
            ready[last], ready[other] = ready[other], ready[last]

    def freeze(self, process: Process) -> None:
        """SIGSTOP: its callbacks wait for `thaw`, while the clock and everybody else go on."""
        self._frozen.setdefault(process, [])

    def is_frozen(self, process: Process) -> bool:
        return process in self._frozen

    def thaw(self, process: Process) -> None:
        self._ready.extend(self._frozen.pop(process, ()))  # type: ignore[attr-defined]

    def start(self, process: Process, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs `main` as the main task of `process`: all that it starts belongs to that process."""
        context = copy_context()
        context.run(_process.set, process)
        return self.create_task(main, context=context)

    def kill(self, process: Process) -> None:
        """SIGKILL: nothing of this process ever runs again.

        Its tasks stay referenced until the story is over: collecting one would run its `finally` blocks.
        """
        process.dead = True

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        if self.over:
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon(callback, *args, context=context)

    def bury(self) -> None:
        """After the story: closes what still waits, so that nothing is collected later with a noise."""
        self.over = True
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())

    def run_in_executor(self, *_: object) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a thread in the simulation: a seam is missing")

    async def create_connection(self, *_: object, **__: object) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a socket in the simulation: a seam is missing")

    async def create_server(self, *_: object, **__: object) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a socket in the simulation: a seam is missing")

    async def subprocess_exec(self, *_: object, **__: object) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a subprocess in the simulation: a seam is missing")


def run(loop: VirtualLoop, story: Coroutine[Any, Any, T]) -> T:
    """Runs the story to its end and closes the loop; tasks left over are ended without a sound."""
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(story)
    finally:
        loop.bury()
        asyncio.set_event_loop(None)
        loop.close()


def _close(coro: Any) -> None:
    """A coroutine that awaits in its `finally` ignores the first close, and so on: each gets one step on."""
    for _ in range(20):
        with contextlib.suppress(BaseException):
            coro.close()
            return


def _make_task(loop: Any, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **kwargs)
    loop._tasks.append(task)
    return task
