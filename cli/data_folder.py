"""The data folder: its files, its locks, and its secrets, which have mode 0600.

.stoker/
  stoker.db          the store (control)            secret.key   decrypts its secrets (control)
  api_key            the key that `up` created      join_token   the token that nodes join with
  objects/           the embedded object store      object-store.json   its credentials and port
  agent/             a node's id, outbox, scratch   weights/     weights of the hosted models
  control.json       which database control uses
  ca/                the private authority of `stoker ca`, and the certificate that it made for control
  logs/              the output of control and agent, of this run and of the run before
  up.lock            locked while an `up` runs here: a second one is refused
  control.lock, agent/agent.lock   the same for these two, after a wait: if its `up` was killed, an agent may
                     still be ending its jobs
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stoker.cli.errors import CliError

log = logging.getLogger(__name__)

PATIENCE_S = 20.0
"""How long to wait for a lock: an agent that stops takes 10 s for its jobs, and some time to write its
outbox."""

RETRY_S = 0.1


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Paths below one root. `make` creates the folders."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> DataFolder:
        folder = cls(root.absolute())
        try:
            folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in (folder.agent, folder.logs, folder.spool, folder.sources):
                path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise CliError(f"the data folder {root} cannot be made: {error.strerror}") from error
        return folder

    @property
    def store(self) -> Path:
        return self.root / "stoker.db"

    @property
    def agent(self) -> Path:
        return self.root / "agent"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def spool(self) -> Path:
        """Control's temporary files: bodies of requests and of webhooks. They have no names."""
        return self.root / "spool"

    @property
    def sources(self) -> Path:
        """Archives of handlers that control sends to nodes."""
        return self.root / "sources"

    @property
    def authority(self) -> Path:
        """The folder of the private authority."""
        return self.root / "ca"

    @property
    def control_note(self) -> Path:
        """The file in which control says which database it uses."""
        return self.root / "control.json"

    @property
    def api_key(self) -> Path:
        return self.root / "api_key"

    @property
    def join_token(self) -> Path:
        return self.root / "join_token"

    @property
    def lock(self) -> Path:
        return self.root / "up.lock"

    @property
    def control_lock(self) -> Path:
        return self.root / "control.lock"


@contextmanager
def locked(lock: Path, otherwise: str) -> Iterator[None]:
    """Holds the lock for the block. Raises CliError(`otherwise`) if another process has it. The kernel
    unlocks when the process ends."""
    fd = _open(lock)
    try:
        if not _try_lock(fd):
            raise CliError(otherwise)
        yield
    finally:
        os.close(fd)


def is_locked(lock: Path) -> bool:
    """Returns whether another process has the lock; nothing is made where there is none."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


@asynccontextmanager
async def locked_after_wait(
    lock: Path, otherwise: str, patience_s: float | None = None
) -> AsyncIterator[bool]:
    """Holds the lock as `locked` does, but waits up to `patience_s`, else PATIENCE_S, for a process that may
    be ending, and logs the wait once. Yields whether it waited."""
    import asyncio  # here: commands that call a service read the folder's key, and start without it

    loop = asyncio.get_running_loop()
    patience_s = PATIENCE_S if patience_s is None else patience_s
    until = loop.time() + patience_s
    fd = _open(lock)
    try:
        if waited := not _try_lock(fd):
            at_most = f", at most {patience_s:g} s" if patience_s < math.inf else ""
            log.warning("%s; waiting for it to end%s", otherwise, at_most)
            while not _try_lock(fd):
                if loop.time() >= until:
                    raise CliError(otherwise)
                await asyncio.sleep(RETRY_S)
        yield waited
    finally:
        os.close(fd)


def _open(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def load_or_create_token(path: Path, prefix: str) -> tuple[str, bool]:
    """Returns the token in this file, and whether the token was created now because the file did not exist.

    The token has the format of control's tokens: `prefix_<id>_<secret>`.
    """
    try:
        return read_private(path), False
    except FileNotFoundError:
        token = f"{prefix}_{secrets.token_hex(6)}_{secrets.token_hex(32)}"
        write_private(path, token + "\n")
        return token, True


def write_private(path: Path, text: str) -> None:
    """Writes with mode 0600 from the first byte; a crash leaves the old file or the new one."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def read_private(path: Path) -> str:
    """Reads a secret. Raises CliError if others may read the file, FileNotFoundError if there is none."""
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise CliError(f"{path} holds a secret and others may read it (mode {mode:04o}): chmod 600 {path}")
    secret = path.read_text(encoding="utf-8").strip()
    if not secret:
        raise CliError(f"{path} is empty; remove it, and a new one is created")
    return secret
