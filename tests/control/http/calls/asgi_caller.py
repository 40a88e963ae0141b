"""A caller below HTTP: sees each message that the application sends, and leaves when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.control.http.calls.fake_plane import KEY


class Caller:
    """`send` can be held up, so that a test looks while an answer is half written."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> None:
        sent = {"authorization": f"Bearer {KEY}"} | dict(headers or {})
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(key.lower().encode(), value.encode()) for key, value in sent.items()],
        }
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.may_send = asyncio.Semaphore(1000)
        self.inbox.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def receive(self) -> dict[str, Any]:
        return await self.inbox.get()

    async def send(self, message: Any) -> None:
        await self.may_send.acquire()
        self.sent.put_nowait(dict(message))

    def leave(self) -> None:
        self.inbox.put_nowait({"type": "http.disconnect"})

    def call(self, app: Any) -> asyncio.Task[None]:
        return asyncio.create_task(app(self.scope, self.receive, self.send))

    async def text(self) -> str:
        """The next part of the body that is not empty."""
        while True:
            message = await self.sent.get()
            if message.get("body"):
                return str(message["body"], "utf-8")
