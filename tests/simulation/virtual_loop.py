"""An asyncio loop in which time is virtual, order is drawn from a seed, and a process can die at once.

- `time()` is a number. When nothing is ready, it jumps to the next timer; when there is no timer either,
  the run is stuck and says so.
- Callbacks that are ready together run in an order drawn from the seed.
- Threads, sockets, pipes and subprocesses raise: whoever needs one in a shell has missed a seam.
- Every callback belongs to the `Process` whose context made it. `kill` drops a process's callbacks without
  running any `finally`: its tasks simply never go on, as after a SIGKILL. (Cancellation is not a crash.)
"""

from __future__ import annotations

import asyncio
import contextlib
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


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("nothing is ready and no timer is set")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. `steps` counts callbacks run, `limit` bounds them."""

    def __init__(self, seed: int, *, limit: int = 2_000_000) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._order = Random(seed)
        self.steps = 0
        self.limit = limit
        self.over = False
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self._jumping.now

    def _run_once(self) -> None:
        ready = [handle for handle in self._ready if not _is_dead(handle)]  # type: ignore[attr-defined]
        self._order.shuffle(ready)
        self._ready.clear()  # type: ignore[attr-defined]
        self._ready.extend(ready)  # type: ignore[attr-defined]
        for handle in self._scheduled:  # type: ignore[attr-defined]
            if _is_dead(handle) and not handle._cancelled:
                handle.cancel()
        self.steps += len(ready)
        if self.steps > self.limit:
            raise Stuck(f"over {self.limit} callbacks at {self.time():.3f} s")
        super()._run_once()  # type: ignore[misc]

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


def _is_dead(handle: asyncio.Handle) -> bool:
    process = handle._context.get(_process) if handle._context is not None else None  # type: ignore[attr-defined]
    return process is not None and process.dead


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
