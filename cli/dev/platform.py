"""The platform that an app's endpoints are on: the one that is configured, or one that is started here.

`stoker dev --local` starts `stoker up` on free ports, with its data in the data folder; it ends with this
process. Without a GPU its workers run on the CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from stoker.cli import extras
from stoker.cli.access import find_key
from stoker.cli.data_folder import DataFolder
from stoker.cli.errors import CliError
from stoker.cli.processes.parents import VARIABLE as PARENT
from stoker.cli.processes.readiness import parse_ready
from stoker.cli.up.up import stoker_command

CONFIG = """# Written by `stoker dev --local`.
functions = true
"""
START_S = 60.0
STOP_S = 20.0
LAST_LINES = 5


@dataclass(frozen=True, slots=True)
class Platform:
    url: str
    key: str


def configured(url: str, data_dir: Path) -> Platform:
    """Raises CliError if there is no key."""
    try:
        return Platform(url, find_key(data_dir))
    except CliError as error:
        raise CliError(f"{error}; or start a platform on this machine: stoker dev --local") from None


@contextlib.asynccontextmanager
async def local(data_dir: Path, say: Callable[[str], None]) -> AsyncIterator[Platform]:
    """Runs a platform on this machine during the block. Raises CliError if it does not start."""
    extras.check(("control", "agent"))
    folder = DataFolder.make(data_dir)
    config = folder.root / "dev.toml"
    config.write_text(CONFIG, encoding="utf-8")
    say(f"starting a platform on this machine; its logs are in {folder.logs}")
    began = time.monotonic()
    log = folder.logs / "up.log"
    process, ready = _start(folder, config, log)
    try:
        url = await _wait_ready(process, ready, log)
        say(f"the platform runs at {url} (started in {time.monotonic() - began:.1f} s)")
        say(f"in another terminal, for stoker deploy or stoker logs: export STOKER_URL={url}")
        yield Platform(url, find_key(data_dir))
    finally:
        await asyncio.shield(asyncio.to_thread(_stop, process))


def _start(folder: DataFolder, config: Path, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Starts the platform. Returns the process, and the end of a pipe on which the process announces its
    address."""
    read, write = os.pipe()
    command = (*stoker_command(), "up", "--no-hosted", "--port", "0", "--ready-fd", str(write))
    command += ("--data-dir", str(folder.root), "--config", str(config))
    try:
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(write,),
                start_new_session=True,  # the terminal's Ctrl-C is for this process, which stops it last
            )
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    return process, read


async def _wait_ready(process: subprocess.Popen[bytes], ready: int, log: Path) -> str:
    loop = asyncio.get_running_loop()
    line = loop.create_future()

    def readable() -> None:
        loop.remove_reader(ready)
        if not line.done():
            line.set_result(os.read(ready, 4096))

    loop.add_reader(ready, readable)
    try:
        async with asyncio.timeout(START_S):
            facts = parse_ready(await line)
    except TimeoutError:
        raise CliError(f"the platform was not ready after {START_S:g} s; see {log}") from None
    finally:
        loop.remove_reader(ready)
        os.close(ready)
    if facts is None:
        raise CliError(f"the platform did not start: {_last_lines(log)}")
    return facts["http"]


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])
