"""Installation of an endpoint's dependencies: an environment made with pip, and packages of the system.

pip's own variables (PIP_INDEX_URL, PIP_FIND_LINKS, PIP_NO_INDEX, PIP_CONSTRAINT) are in the endpoint's `env`.
The new environment has what the worker's has, too: what is installed there already is not installed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import site
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from stoker.worker.errors import HandlerError

Log = Callable[[str], None]
_LINES = 20
"""Of pip's last lines, in the message of a failure."""

_LINE_MAX = 1 << 16
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")
_OFFLINE = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Failed to establish a new connection",
    "Connection refused",
    "ConnectTimeoutError",
)


class InstallFailed(HandlerError):
    """The message says why, with the last lines of pip."""


async def make_environment(folder: Path, dependencies: Sequence[str], log: Log) -> None:
    """Makes a virtual environment at `folder` and installs the dependencies. Raises InstallFailed."""
    bare = ["--without-pip"] if _has_pip() else []  # a second pip takes seconds to install
    lines = await _run([sys.executable, "-I", "-m", "venv", *bare, str(folder)], log)
    if lines is not None:
        raise InstallFailed(f"no environment can be made at {folder}: {lines}")
    _inherit(folder)
    options = ["--disable-pip-version-check", "--no-input", "--no-cache-dir", "--progress-bar", "off"]
    options += ["--retries", "1", "--timeout", "15"]
    python = str(python_of(folder))
    pip = [sys.executable, "-m", "pip", "--python", python] if bare else [python, "-m", "pip"]
    lines = await _run([*pip, "install", *options, "--", *dependencies], log)
    if lines is not None:
        why = failure(lines, os.environ)
        message = f"the dependencies {', '.join(dependencies)} could not be installed: {why}\n{lines}"
        raise InstallFailed(
            _SECRET.sub("****@", message)
        )  # callers see it, and git+https:// may have a token


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


async def install_system_packages(packages: Sequence[str], log: Log) -> None:
    """Installs packages of the system, only in a container of the worker's own. Raises InstallFailed."""
    names = ", ".join(packages)
    if not in_container(os.environ):
        raise InstallFailed(
            f"system_dependencies ({names}) are installed in containers only, and this worker is a process of"
            " its host; install them on the host, and leave them out"
        )
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise InstallFailed(f"system_dependencies ({names}) need apt-get and root in the worker's container")
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", "--", *packages],
    ):
        lines = await _run(command, log)
        if lines is not None:
            raise InstallFailed(f"system_dependencies ({names}) could not be installed:\n{lines}")


def in_container(environ: Mapping[str, str], root: Path = Path("/")) -> bool:
    """Returns whether this worker has a container of its own; an agent marks the processes of its host."""
    marks = (root / ".dockerenv", root / "run" / ".containerenv")
    return "STOKER_AGENT" not in environ and any(mark.exists() for mark in marks)


def failure(lines: str, environ: Mapping[str, str]) -> str:
    """Returns why pip failed, judged by its printed lines."""
    if any(text in lines for text in _OFFLINE):
        index = urlsplit(environ.get("PIP_INDEX_URL", "https://pypi.org")).hostname  # without a password
        return (
            f"this worker has no access to {index}. Name a mirror by PIP_INDEX_URL, or a folder of wheels by"
            " PIP_NO_INDEX=1 and PIP_FIND_LINKS, in the endpoint's env"
        )
    errors = [line for line in lines.splitlines() if line.startswith("ERROR:")]
    return errors[-1].removeprefix("ERROR:").strip() if errors else "pip failed"


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def _inherit(folder: Path) -> None:
    """Lets the environment import what the worker's own has, after what it has itself."""
    (packages,) = (folder / "lib").glob("python*/site-packages")
    own = [path for path in site.getsitepackages() if os.path.isdir(path)]
    lines = [f"import site; site.addsitedir({json.dumps(path)})\n" for path in own]
    (packages / "worker.pth").write_text("".join(lines), encoding="utf-8")


async def _run(command: Sequence[str], log: Log) -> str | None:
    """Runs a command, and returns None if the command succeeded, else its last lines. Each line is logged
    when it arrives; no process of the command is left if this call is cancelled.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        limit=_LINE_MAX,
    )
    last: deque[str] = deque(maxlen=_LINES)
    try:
        assert process.stdout is not None  # a pipe was requested
        async for data in _lines(process.stdout):
            last.append(data.decode("utf-8", "replace").rstrip())
            log(last[-1])
        status = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return None if status == 0 else "\n".join(last) or f"status {status}"


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yields the stream's lines; a line that is too long is yielded in pieces."""
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                yield error.partial
            return
        except asyncio.LimitOverrunError as error:
            line = await stream.readexactly(error.consumed)
        yield line
