"""The run of the local server, from its socket to Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from stoker.control.http.server.connection import Connection

GRACE_S = 2
"""How long calls in progress may take to end after Ctrl-C; then their jobs are cancelled."""


class _Uvicorn(uvicorn.Server):
    """A uvicorn server without signal handlers of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serves during the block."""
    config = uvicorn.Config(
        app,
        http=Connection,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    server = _Uvicorn(config)
    task = asyncio.create_task(server.serve([listener]), name="local server")
    try:
        yield
    finally:
        server.should_exit = True
        await task


def _is_news(record: logging.LogRecord) -> bool:
    """Returns False for a response without an end, which its call has reported."""
    return "without completing response" not in record.getMessage()


def url_of(listener: socket.socket, host: str) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return f"http://{bracketed}:{listener.getsockname()[1]}"
