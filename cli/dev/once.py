"""`stoker dev --once SCRIPT`: a program that is run once beside the local server, which its calls go to."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from stoker.cli.dev.platform import Platform
from stoker.client.apps.by_name import DEV_SERVER

STOP_S = 5.0
"""How long the program may take to end after Ctrl-C."""


async def run_script(script: Path, server: str, found: Platform) -> int:
    """Returns the exit status of the program, which is ended where the call is cancelled."""
    known = {DEV_SERVER: server, "STOKER_URL": found.url, "STOKER_API_KEY": found.key}
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), env={**os.environ, **known})
    try:
        status = await process.wait()
        return status if status >= 0 else 128 - status
    finally:
        if process.returncode is None:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
