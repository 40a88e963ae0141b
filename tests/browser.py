"""A headless browser: what it makes of a page, and where it connects to."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOWS_S = 180
LOOPBACK_ONLY = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@contextmanager
def browsing(
    address: str,
    folder: Path,
    *options: str,
    hosts: str = LOOPBACK_ONLY,
    stdout: IO[bytes] | int = subprocess.PIPE,
    stderr: IO[bytes] | int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[bytes]]:
    """A browser that goes to the address, with a profile in this folder. Its temporary files go with it."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="stoker-browser-") as temporary:
        browser = subprocess.Popen(
            [
                CHROMIUM,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
                f"--host-resolver-rules={hosts}",
                f"--user-data-dir={folder / 'profile'}",
                *options,
                address,
            ],
            stdout=stdout,
            stderr=stderr,
            env=os.environ | {"TMPDIR": temporary},
        )
        try:
            yield browser
        finally:
            browser.terminate()
            browser.communicate()


async def in_browser(address: str, folder: Path) -> tuple[str, set[str]]:
    """What a browser makes of the page, and where it connected to."""
    log = folder / "net.json"
    options = (f"--log-net-log={log}", "--virtual-time-budget=20000", "--dump-dom")
    with browsing(address, folder, *options) as browser:
        page, _ = await asyncio.to_thread(browser.communicate, timeout=SHOWS_S)
    return page.decode(), _connected(json.loads(log.read_text()))


def _connected(log: dict[str, Any]) -> set[str]:
    """Hosts by their addresses; what the browser itself would ask its makers finds no name to connect to."""
    types = log["constants"]["logEventTypes"]
    attempts = {types["TCP_CONNECT_ATTEMPT"], types["TCP_CONNECT"]}
    found = [event.get("params", {}) for event in log["events"] if event["type"] in attempts]
    places = [place for one in found for place in (one.get("address"), *one.get("address_list", ())) if place]
    return {place.rpartition(":")[0] for place in places}
