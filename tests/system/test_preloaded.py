"""The server that starts control and agent for these tests: several threads may ask it."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.system.preloaded import Preloaded, Server, preloaded
from tests.system.stack import SOURCE


def started(server: Server, folder: Path, name: str, *command: str) -> Preloaded:
    with open(folder / name, "ab") as log, open(os.devnull, "wb") as ready:
        return server.start(list(command), os.environ, folder, log.fileno(), ready.fileno())


@pytest.mark.slow
def test_each_thread_gets_the_process_that_it_started(tmp_path: Path) -> None:
    server = preloaded(SOURCE)

    def one(n: int) -> tuple[int, str]:
        process = started(server, tmp_path, str(n), *(["--version"] if n % 2 else [f"no-command-{n}"]))
        status = process.wait()
        process.send_signal(signal.SIGTERM)  # it has ended: this reaches nobody
        return status, (tmp_path / str(n)).read_text()

    with ThreadPoolExecutor(8) as threads:
        for n, (status, printed) in enumerate(threads.map(one, range(24))):
            assert status == (0 if n % 2 else 2)
            assert printed.startswith("stoker ") if n % 2 else f"no-command-{n}" in printed


@pytest.mark.slow
def test_a_server_that_ends_is_waited_for(tmp_path: Path) -> None:
    server = Server(SOURCE)
    assert started(server, tmp_path, "log", "--version").wait(60) == 0
    server.close()
