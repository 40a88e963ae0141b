"""An application that its first request makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class Lazily:
    """An application that `make` makes in a thread, for the first request. Others wait for that; if it fails,
    the next request tries again."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app or await self._made())(scope, receive, send)

    async def _made(self) -> ASGIApp:
        async with self._making:
            if self._app is None:
                self._app = await asyncio.to_thread(self._make)
            return self._app
