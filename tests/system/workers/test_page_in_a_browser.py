"""A program with a page of its own, used in a real browser through the gateway, by path and by name.

A browser sends no API key by itself. As in front of a real page, a proxy adds it: here a few lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser import CHROMIUM, LOOPBACK_ONLY, browsing
from tests.conformance.stock_client import installed
from tests.system.stack import SERVERS, Stack, queue_endpoint, running, until

pytestmark = pytest.mark.slow
DOMAIN = "lb.localhost"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, state: Path) -> Iterator[Stack]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium here")
    page = queue_endpoint(
        "page",
        "",
        imageName=f"local:{SERVERS}",
        dockerStartCmd=[str(installed("python") / "bin" / "python"), "page_server.py"],
        type="LOAD_BALANCER",
        computeType="CPU",
    )
    env = f"[endpoints.env]\nSTATE = {json.dumps(str(state))}\n"
    with running(tmp_path_factory.mktemp("stack"), f'gateway_domain = "{DOMAIN}"', page + env) as stack:
        ready = lambda: stack.health("page")["workers"]["ready"] == 1  # noqa: E731
        until(ready, 120, "a worker that is ready")
        yield stack


class KeyProxy:
    """Adds the key to each request; one request a connection, but for WebSockets, which stay open."""

    def __init__(self, stack: Stack) -> None:
        where = urlsplit(stack.facts["http"])
        self._to = where.hostname, where.port
        self._key = stack.key
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> KeyProxy:
        self._thread.start()
        opening = asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            if not any(line.lower().startswith("upgrade:") for line in lines):
                lines = [line for line in lines if not line.lower().startswith("connection:")]
                lines.append("Connection: close")
            lines.append(f"Authorization: Bearer {self._key}")
            back, to = await asyncio.open_connection(*self._to)
            to.write(("\r\n".join([first, *lines]) + "\r\n\r\n").encode("latin-1"))
            try:
                async with asyncio.TaskGroup() as copies:
                    copies.create_task(copy(reader, to))
                    copies.create_task(copy(back, writer))
            finally:
                to.close()
        writer.close()


async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65_536):
            to.write(data)
            await to.drain()
    to.close()


def reported(address: str, state: Path, folder: Path) -> dict[str, Any]:
    """What the page found in a browser that went to the address."""
    (state / "report").unlink(missing_ok=True)
    log = folder / "browser.log"
    hosts = f"MAP *.{DOMAIN} 127.0.0.1, {LOOPBACK_ONLY}"
    stays = "--remote-debugging-port=0"  # without it, a headless browser ends once the page is loaded
    with (
        log.open("wb") as errors,
        browsing(address, folder, stays, hosts=hosts, stdout=errors, stderr=errors),
    ):
        until((state / "report").exists, 120, "a report of the page", lambda: log.read_text()[-3000:])
    found: dict[str, Any] = json.loads((state / "report").read_text())
    return found


@pytest.mark.parametrize(
    ("host", "path", "home"),
    [("127.0.0.1", "/v2/page/", "/v2/page/home/"), (f"page.{DOMAIN}", "/", "/home/")],
)
def test_a_page_is_used_through_the_gateway(
    stack: Stack, state: Path, tmp_path: Path, host: str, path: str, home: str
) -> None:
    with KeyProxy(stack) as proxy:
        found = reported(f"http://{host}:{proxy.port}{path}", state, tmp_path)
    assert found == {
        "at": home,
        "cookie": "theme=dark",  # the other one is not for scripts
        "color": "rgb(1, 2, 3)",
        "upload": {"note": "a picture", "name": "picture.bin", "sum": 7 * 3_000_000},
        "session": "s-1",
        "moved": [True, "s-1"],
        "events": ["first", "last"],
        "socket": [*(f'{{"step": {step}}}' for step in range(3)), 400_000, "done", 1000, True],
    }
