"""A headless browser: what it makes of a page, and where it connects to."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOWS_S = 180


async def in_browser(address: str, folder: Path) -> tuple[str, set[str]]:
    """What a browser makes of the page, and where it connected to."""
    assert CHROMIUM is not None
    log = folder / "net.json"
    with tempfile.TemporaryDirectory(prefix="stoker-browser-") as temporary:
        browser = await asyncio.create_subprocess_exec(
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={log}",
            "--virtual-time-budget=20000",
            "--dump-dom",
            address,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": temporary},
        )
        try:
            async with asyncio.timeout(SHOWS_S):
                page, _ = await browser.communicate()
        finally:
            if browser.returncode is None:
                browser.kill()
                await browser.wait()
    return page.decode(), _connected(json.loads(log.read_text()))


def _connected(log: dict[str, Any]) -> set[str]:
    """Hosts by their addresses; what the browser itself would ask its makers finds no name to connect to."""
    types = log["constants"]["logEventTypes"]
    attempts = {types["TCP_CONNECT_ATTEMPT"], types["TCP_CONNECT"]}
    found = [event.get("params", {}) for event in log["events"] if event["type"] in attempts]
    places = [place for one in found for place in (one.get("address"), *one.get("address_list", ())) if place]
    return {place.rpartition(":")[0] for place in places}
