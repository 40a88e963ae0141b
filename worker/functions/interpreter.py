"""The worker's side of the process that functions run in: starts it, calls it, cancels calls, and ends it.

    start ──ready──> calls ──close──> the socket closes; SIGKILL if it is still there after CLOSE_S

A cancelled call is given CANCEL_S to end; then the process is killed. If other calls run in it, it takes no
new ones and is killed once they have ended; where the call was a job's, the agent ends the worker before,
and requeues the others. A process that says that it is worn takes no new ones either. If the process dies,
its calls fail with the reason. The next call starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import stoker
from stoker.worker.errors import HandlerError
from stoker.worker.functions.code import VARIABLE
from stoker.worker.functions.messages import HEAD, length, pack, unpack

CANCEL_S = 1.0
"""Less than the 2 s after which the agent ends the worker."""
CLOSE_S = 5.0
READY_S = 60.0
_PACKAGE = str(Path(stoker.__file__).parents[1])
_BEGIN = (
    "import sys; sys.path.append(sys.argv.pop(1)); from stoker.worker.functions.child import main;"
    " main(*sys.argv[1:])"
)
"""The package's folder comes last: its modules must not hide a dependency's."""


class CallFailed(HandlerError):
    """The error that the function raised, with its traceback. `status` is that of a response: 422 if the
    arguments are wrong.
    """

    def __init__(self, message: str, status: int, *, retryable: bool) -> None:
        super().__init__(message, retryable=retryable)
        self.status = status


class Interpreter:
    """The interpreter of an app's functions, a process of its own. Made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process, writer: asyncio.StreamWriter) -> None:
        self._process, self._writer = process, writer
        self._numbers = itertools.count()
        self._calls: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._stuck: set[int] = set()
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def start(cls, python: str, root: str, folder: str, concurrent: int) -> Interpreter:
        """Starts `python` with the app's folder `root`. Raises HandlerError if it does not come up."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            command = [python, "-P", "-c", _BEGIN, _PACKAGE, str(number), root, folder, str(concurrent)]
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[number],
                    env=_environment(os.environ),
                )
            except OSError as error:
                ours.close()
                raise HandlerError(f"{python} cannot be started: {error.strerror}") from None
        reader, writer = await asyncio.open_connection(sock=ours)
        made, messages = cls(process, writer), _messages(reader)
        try:
            async with asyncio.timeout(READY_S):
                await anext(messages)
        except (TimeoutError, StopAsyncIteration):
            why = await made._end()
            await made.close()
            raise HandlerError(f"the functions' process did not start: {why}") from None
        except BaseException:
            await made.close()
            raise
        made._reading = asyncio.create_task(made._read(messages), name="reads what functions send")
        return made

    @property
    def alive(self) -> bool:
        return not self._closed and self._reading is not None and not self._reading.done()

    async def call(
        self,
        message: Mapping[str, Any],
        on_progress: Callable[[Any], None],
        on_chunk: Callable[[Any], Awaitable[None] | None],
        on_line: Callable[[str], None] | None = None,
    ) -> Any:
        """Returns the result, as JSON values. `on_chunk` of a route is waited for: the route yields no more
        than a few chunks ahead. `on_line` gets the lines that the function prints. Raises CallFailed for what
        the function raised, HandlerError if the process died.
        """
        number = next(self._numbers)
        answers = self._calls[number] = asyncio.Queue()
        try:
            await self._send({"call": number, "lines": on_line is not None, **message})
            while True:
                answer = await answers.get()
                if "progress" in answer:
                    on_progress(answer["progress"])
                elif "chunk" in answer:
                    if (taken := on_chunk(answer["chunk"])) is not None:
                        await taken
                        await self._send({"taken": number})
                elif on_line is not None and "line" in answer:
                    on_line(answer["line"])
                elif "result" in answer:
                    return answer["result"]
                elif "died" in answer:
                    raise HandlerError(answer["died"])
                else:
                    raise CallFailed(answer["error"], answer["status"], retryable=answer["retryable"])
        except asyncio.CancelledError:
            await self._cancel(number, answers)
            raise
        finally:
            del self._calls[number]
            self._stuck.discard(number)
            self._kill_if_stuck()

    async def close(self) -> None:
        """Ends the process, and waits for its end."""
        self._closed = True
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def _read(self, messages: AsyncIterator[dict[str, Any]]) -> None:
        async for message in messages:
            if "worn" in message:
                self._closed = True
                print(f"the functions' process is replaced: {message['worn']}", flush=True)
            elif message["call"] in self._calls:  # else it was cancelled, and waits no more
                self._calls[message["call"]].put_nowait(message)
        why = await self._end()
        for answers in self._calls.values():
            answers.put_nowait({"died": f"the functions' process has ended: {why}"})

    async def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # its end is reported by `_read`
            self._writer.write(pack(message))
            await self._writer.drain()

    async def _cancel(self, number: int, answers: asyncio.Queue[dict[str, Any]]) -> None:
        await self._send({"cancel": number})
        ended = asyncio.create_task(_end_of(answers), name=f"end of call {number}")
        await asyncio.wait([ended], timeout=CANCEL_S)
        if not ended.done():
            self._closed = True
            self._stuck.add(number)
            self._kill_if_stuck()
        await ended

    def _kill_if_stuck(self) -> None:
        """Kills the process once only calls that were cancelled are left in it."""
        if self._stuck and self._stuck == self._calls.keys() and self._process.returncode is None:
            self._process.kill()

    async def _end(self) -> str:
        """Returns how the process ended, after it has closed its end of the socket."""
        try:
            async with asyncio.timeout(CLOSE_S):
                status = await self._process.wait()
        except TimeoutError:
            return "it has closed its connection"
        if status < 0:
            return f"it was killed by {_signal_name(-status)}"
        return f"it exited with status {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


async def _end_of(answers: asyncio.Queue[dict[str, Any]]) -> None:
    while not {"result", "error", "died"} & (await answers.get()).keys():
        pass


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readexactly(HEAD)
            yield unpack(await reader.readexactly(length(head)))


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the worker's environment, without the package's folder in PYTHONPATH, and without the code."""
    kept = {name: value for name, value in environ.items() if not name.startswith(VARIABLE)}
    search = [one for one in kept.pop("PYTHONPATH", "").split(os.pathsep) if one and one != _PACKAGE]
    return {**kept, **({"PYTHONPATH": os.pathsep.join(search)} if search else {})}
