"""`stoker up --reload`: watches stoker.toml and the handlers' source, and restarts control after a change.

a file changes ─> can the configuration be read? ─no─> prints why; the old one stays in use
                          │ yes
                          └─> did it, or a handler's source, change? ─yes─> `restart`: control reads
                              both again; running jobs stay with their workers, which end them first
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from watchfiles import awatch

from stoker.cli.control.sources import sources
from stoker.cli.errors import CliError
from stoker.control.config.config import ConfigError
from stoker.control.rules.types import Endpoint


@dataclass(frozen=True, slots=True)
class Served:
    """A configuration, and digests of its handlers' source. `roots`: the folders that may contain
    handlers."""

    text: bytes
    roots: tuple[str, ...]
    sources: dict[str, str]


class Reloading:
    """The watch of `stoker up --reload`. `read` returns the endpoints and roots of the configuration. Raises
    ConfigError or CliError."""

    def __init__(
        self,
        config: Path,
        read: Callable[[], tuple[Sequence[Endpoint], tuple[str, ...]]],
        restart: Callable[[], None],
        print_line: Callable[[str], None],
    ) -> None:
        self._config, self._read, self._restart, self._print_line = config, read, restart, print_line
        self._served = self._read_served()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            roots = self._served.roots
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(self._watch(Path(root), recursive=True)) for root in roots]
                watching.append(tasks.create_task(self._watch(self._config.parent, recursive=False)))
                while self._served.roots == roots:
                    await self._changed.wait()
                    self._changed.clear()
                    self.look_again()
                for task in watching:
                    task.cancel()

    def look_again(self) -> None:
        try:
            found = self._read_served()
        except (ConfigError, CliError, OSError) as error:
            self._print_line(f"{error}; the old configuration stays in use")
            return
        changed = self._differences(found)
        self._served = found
        if changed:
            self._print_line(
                f"changed: {', '.join(changed)}; workers end their jobs before new workers replace them"
            )
            self._restart()

    def _read_served(self) -> Served:
        endpoints, roots = self._read()
        return Served(self._config.read_bytes(), roots, sources(endpoints))

    def _differences(self, found: Served) -> list[str]:
        old = self._served
        both = found.sources.keys() & old.sources.keys()
        changed = [
            f"the source of {name}" for name in sorted(both) if found.sources[name] != old.sources[name]
        ]
        return ([self._config.name] if found.text != old.text else []) + changed

    async def _watch(self, folder: Path, *, recursive: bool) -> None:
        try:
            async for _ in awatch(folder, recursive=recursive):
                self._changed.set()
        except (OSError, RuntimeError) as error:  # the host's limit of watches, or the folder was removed
            self._print_line(f"changes in {folder} are not seen: {error}")
