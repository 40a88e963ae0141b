"""The process that an app's functions run in, started by `interpreter`.

    reader thread ──call──> main thread         a plain function, if calls come one at a time
                  ──call──> a thread of a pool  a plain function, if several run at once
                  ──call──> the loop's thread   an async function
                  ──cancel─> Cancelled is raised in the main thread, or the task is cancelled; a thread of a
                             pool cannot be ended, and the agent ends the worker
    a call ends, and calls keep too many descriptors open ──worn──> no further call comes
    the socket closes ──> the process ends

It runs in the environment of the endpoint's dependencies, so it imports the standard library alone. What a
function prints goes where the worker's output goes, and is flushed before the call's end is sent.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import CancelledError as TaskCancelled
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, suppress
from typing import Any, NoReturn

from stoker.app_values import encode
from stoker.worker.between_jobs.open_files import OpenFiles
from stoker.worker.errors import Cancelled, HandlerError
from stoker.worker.functions.messages import HEAD, length, pack, unpack
from stoker.worker.functions.printed import Copied, PrintedLines, printed
from stoker.worker.functions.progress import reports
from stoker.worker.functions.routing import bind_request
from stoker.worker.functions.targets import Targets, arguments, error_of, result

AHEAD = 8
"""How many chunks of a route may be on their way: whoever reads the response may be slow."""


class Calls:
    """The calls that run. Messages may be sent from any thread."""

    def __init__(self, sock: socket.socket, root: str, concurrent: int) -> None:
        self._socket, self._root = sock, root
        self._sending = threading.Lock()
        self._targets = Targets()
        self._waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(concurrent) if concurrent > 1 else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._on_main: int | None = None
        self._cancelled: set[int] = set()
        self._rooms: dict[int, Callable[[], object]] = {}
        self._open_files = OpenFiles()

    def serve(self) -> NoReturn:
        """Runs the calls that the reader receives, on the main thread."""
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        sys.stdout, sys.stderr = Copied("stdout", sys.stdout), Copied("stderr", sys.stderr)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, self._raise_cancelled)
        os.register_at_fork(after_in_child=self._leave)
        self._send({"ready": os.getpid()})
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        while True:
            with suppress(Cancelled):  # it came as its call ended
                message = self._waiting.get()
                if self._pool is not None:
                    self._pool.submit(self._run, message, on_main=False)
                else:
                    self._run(message, on_main=True)

    def _leave(self) -> None:
        """Silences a process that a function forked: the process reports nothing, and does not hold the
        socket open.
        """
        self._sending = threading.Lock()  # another thread may have held it
        printed.set(None)
        os.close(self._socket.detach())

    def _read(self) -> None:
        with self._socket.makefile("rb") as stream:
            while head := stream.read(HEAD):
                message = unpack(stream.read(length(head)))
                if "cancel" in message:
                    self._cancel(message["cancel"])
                elif "taken" in message:
                    self._make_room(message["taken"])
                else:
                    self._waiting.put(message)
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(0)

    def _cancel(self, number: int) -> None:
        self._cancelled.add(number)
        self._make_room(number)  # a thread of the pool may wait for it
        task = self._tasks.get(number)
        if task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(task.cancel)
        elif self._on_main == number:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _make_room(self, number: int) -> None:
        room = self._rooms.get(number)
        if room is not None:
            room()

    def _raise_cancelled(self, *_: object) -> None:
        if self._on_main in self._cancelled:
            raise Cancelled

    def _run(self, message: dict[str, Any], *, on_main: bool) -> None:
        number = message["call"]
        lines = PrintedLines(lambda line: self._send({"call": number, "line": line}))
        printed.set(lines if message["lines"] else None)
        try:
            ended = pack({"call": number, "result": self._result(message, on_main=on_main)})
        except BaseException as error:  # a function may raise anything, SystemExit too
            ended = pack({"call": number, **error_of(error, self._root)})
        with suppress(Exception):  # a function may have replaced or closed them
            sys.stdout.flush()
            sys.stderr.flush()
        lines.close()
        self._cancelled.discard(number)
        if why := self._open_files.excess():
            self._send({"call": number, "worn": why})
        self._write(ended)

    def _result(self, message: dict[str, Any], *, on_main: bool) -> Any:
        number, name = message["call"], message["callable"]
        reports.set(
            lambda value: self._send({"call": number, "progress": encode(value, where="the progress")})
        )
        try:
            self._on_main = number if on_main else None
            if number in self._cancelled:
                raise Cancelled
            target = self._targets.find(message["module"], name)
            returned = target(**self._arguments(target, message))
            if inspect.isawaitable(returned) or inspect.isasyncgen(returned):
                self._on_main = None
                returned = self._awaited(number, returned, "request" in message)
            elif inspect.isgenerator(returned):
                returned = self._yielded(number, returned, "request" in message)
            return result(returned, name, message.get("scratch", ""))
        finally:
            self._on_main = None

    def _arguments(self, target: Callable[..., Any], message: dict[str, Any]) -> dict[str, Any]:
        if "request" in message:
            return bind_request(target, message)
        return arguments(target, message["callable"], message["kwargs"])

    def _awaited(self, number: int, returned: Any, streams: bool) -> Any:
        """Returns the value of a coroutine, or the chunks of an async generator, run on the loop's thread."""

        async def run() -> Any:
            task = asyncio.current_task()
            assert task is not None  # this is one
            self._tasks[number] = task
            try:
                if number in self._cancelled:
                    task.cancel()
                if inspect.isasyncgen(returned) and streams:
                    return await self._stream_async(number, returned)
                if inspect.isasyncgen(returned):
                    return [self._chunk(number, one) async for one in returned]
                return await returned
            finally:
                del self._tasks[number]

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="loop", daemon=True).start()
        try:
            return asyncio.run_coroutine_threadsafe(run(), self._loop).result()
        except TaskCancelled:
            if number in self._cancelled:
                raise Cancelled from None
            raise HandlerError("the function's task was cancelled by the function itself") from None

    def _yielded(self, number: int, values: Generator[Any, Any, Any], streams: bool) -> list[Any] | None:
        """Sends what a generator yields, and returns the list. That of a route `streams`: as fast as its
        response is read, without a list."""
        if not streams:
            return [self._chunk(number, one) for one in values]
        room, sent = threading.Semaphore(AHEAD), False
        self._rooms[number] = room.release
        try:
            with closing(values):
                for value in values:
                    room.acquire()
                    if number in self._cancelled:
                        raise Cancelled
                    self._chunk(number, value)
                    sent = True
            if not sent:
                self._chunk(number, b"")
            return None
        finally:
            del self._rooms[number]

    async def _stream_async(self, number: int, values: AsyncGenerator[Any, Any]) -> None:
        loop, room, sent = asyncio.get_running_loop(), asyncio.Semaphore(AHEAD), False
        self._rooms[number] = lambda: loop.call_soon_threadsafe(room.release)
        try:
            async with aclosing(values):
                async for value in values:
                    await room.acquire()
                    self._chunk(number, value)
                    sent = True
            if not sent:
                self._chunk(number, b"")
        finally:
            del self._rooms[number]

    def _chunk(self, number: int, value: Any) -> Any:
        chunk = encode(value, where="what was yielded")
        self._send({"call": number, "chunk": chunk})
        return value

    def _send(self, message: dict[str, Any]) -> None:
        if self._socket.fileno() >= 0:  # else this process was forked
            self._write(pack(message))

    def _write(self, data: bytes) -> None:
        with self._sending:  # a cancel waits: it must not leave half of a message
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            try:
                self._socket.sendall(data)
            except OSError:  # the worker is gone, and this process with it
                os._exit(1)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main(fd: str, root: str, folder: str, concurrent: str) -> NoReturn:
    os.set_inheritable(int(fd), False)  # a program that a function starts must not hold the socket open
    sys.path[:0] = [root, os.path.join(root, folder)] if folder else [root]
    Calls(socket.socket(fileno=int(fd)), root, int(concurrent)).serve()
