"""The page of `stoker up`: a child of its own, which starts once the service is ready and holds up nothing.

The page's end is not the service's end: a page that crashes is started again, and one that cannot start is
told in a line.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stoker.cli.control.token_source import API_KEY
from stoker.cli.up.children import AllFacts, Children, Launch

PAGE = "page"


@dataclass(slots=True)
class PageChild:
    """The page as a child of `stoker up`. `command` starts `stoker`. `url` is control's, once it is known."""

    command: tuple[str, ...]
    options: tuple[str, ...]
    api_key: str
    log: Path
    print_line: Callable[[str], None]
    _children: Children | None = None
    _url: str = ""
    _begun: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, url: str) -> None:
        """Starts the page, of the control at this address."""
        self._url = url
        self._begun.set()

    @property
    def pid(self) -> int | None:
        return None if self._children is None else self._children.pid(PAGE)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the page during the block, from `begin` on."""
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._serve(), name="page")
            try:
                yield
            finally:
                if self._children is None:
                    serving.cancel()
                else:
                    self._children.stop()

    async def _serve(self) -> None:
        await self._begun.wait()
        self._children = Children((PAGE,), self._launch, self.print_line, self._ready)
        await self._children.run()

    def _launch(self, name: str, facts: AllFacts, _successor: bool) -> Launch:
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("STOKER_") or name == "STOKER_TLS_CA"
        }
        env[API_KEY] = self.api_key
        argv = (*self.command, "page", "--url", self._url, "--port", "0", *self.options)
        return Launch(argv, env, self.log)

    def _ready(self, facts: AllFacts) -> None:
        self.print_line(f"page  {facts[PAGE].get('link', facts[PAGE]['page'])}")
