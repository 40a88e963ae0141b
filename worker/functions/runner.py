"""The runner of an app's calls: unpacks their code, makes their environment, and keeps one interpreter.

An interpreter is kept while calls come for the same code and dependencies. Other code starts another one; the
former ends when its last call has ended.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.worker.functions.code import Code, unpack
from stoker.worker.functions.environments import Environment, Environments, cache_folder
from stoker.worker.functions.install import Log, install_system_packages
from stoker.worker.functions.interpreter import Interpreter


@dataclass(slots=True)
class _Running:
    code: Code
    interpreter: Interpreter
    environment: Environment
    root: str
    calls: int = 0
    retired: bool = False

    async def close(self) -> None:
        try:
            await self.interpreter.close()
        finally:
            self.environment.close()
            shutil.rmtree(self.root, ignore_errors=True)


class Runner:
    """The runner of an app's calls. `concurrent` is how many calls may run at once."""

    def __init__(self, concurrent: int) -> None:
        self._concurrent = concurrent
        self._environments = Environments(cache_folder(os.environ))
        self._current: _Running | None = None
        self._installed: set[str] = set()
        self._starting = asyncio.Lock()

    async def prepare(self, code: Code, log: Log) -> None:
        """Installs and starts what calls of this code need. Raises HandlerError."""
        await self._running(code, log)

    async def call(
        self,
        code: Code,
        message: Mapping[str, Any],
        log: Log,
        on_progress: Callable[[Any], None],
        on_chunk: Callable[[Any], Awaitable[None] | None],
        on_line: Callable[[str], None] | None = None,
    ) -> Any:
        """Returns the result of one call, as JSON values. `on_line` gets the lines that the function prints.
        Raises HandlerError.
        """
        running = await self._running(code, log)
        running.calls += 1
        try:
            return await running.interpreter.call(message, on_progress, on_chunk, on_line)
        finally:
            running.calls -= 1
            if running.retired and not running.calls:
                await running.close()

    async def close(self) -> None:
        if self._current is not None:
            await self._retire(self._current)

    async def _running(self, code: Code, log: Log) -> _Running:
        async with self._starting:
            current = self._current
            if current is not None and current.interpreter.alive and _same(current.code, code):
                return current
            started = await self._start(code, log)
            self._current = started
            if current is not None:
                await self._retire(current)
            return started

    async def _start(self, code: Code, log: Log) -> _Running:
        files = unpack(code.packed, code.hash)
        if missing := [one for one in code.system_dependencies if one not in self._installed]:
            await install_system_packages(missing, log)
            self._installed.update(missing)
        environment = await self._environments.get(code.dependencies, log)
        root = tempfile.mkdtemp(prefix="functions-", dir=os.environ.get("HOME"))
        try:
            _write(Path(root), files)
            interpreter = await Interpreter.start(environment.python, root, code.folder, self._concurrent)
        except BaseException:
            environment.close()
            shutil.rmtree(root, ignore_errors=True)
            raise
        return _Running(code, interpreter, environment, root)

    async def _retire(self, running: _Running) -> None:
        running.retired = True
        if not running.calls:
            await running.close()


def _same(one: Code, other: Code) -> bool:
    """Returns whether an interpreter of the first code serves the second."""
    return (one.hash, one.folder, one.dependencies, one.system_dependencies) == (
        other.hash,
        other.folder,
        other.dependencies,
        other.system_dependencies,
    )


def _write(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
