"""A stock client SDK in its own interpreter, asked by JSON lines; `.ci/peers` installs what it runs on."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DRIVERS = Path(__file__).parent / "drivers"
PEERS = Path(__file__).parents[2] / ".peers"


class Raised(Exception):
    """The client raised: its exception's class by name and text, and the HTTP status where it has one."""

    def __init__(self, kind: str, text: str, status: int | None) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text, self.status = kind, text, status


class StockClient:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, do: str, **given: Any) -> Any:
        self.begin(do, **given)
        return self.answer()

    def begin(self, do: str, **given: Any) -> None:
        """The client works on it from now on; `answer` waits for its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "given": given}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the driver ended with status {self._process.wait()}; see its log above")
        reported = json.loads(line)
        if "raised" in reported:
            raise Raised(reported["raised"], reported["text"], reported.get("status"))
        return reported["answer"]


def installed(name: str) -> Path:
    """The folder of a stock client; skips, with the reason, where there is none."""
    folder = PEERS / name
    if (folder / ".installed").exists():
        return folder
    why = PEERS / f"{name}.why"
    pytest.skip(why.read_text().strip() if why.exists() else f"{folder} does not exist: run make peers")


@contextlib.contextmanager
def python_client(driver: str, folder: Path, url: str, key: str, *options: str) -> Iterator[StockClient]:
    command = [str(installed("python") / "bin" / "python"), "-EsB", str(DRIVERS / driver), *options]
    # Every base URL that the clients know is ours: none of them may reach for the field's own service.
    urls = dict.fromkeys(
        ("RUNPOD_API_BASE_URL", "RUNPOD_REST_API_URL", "RUNPOD_HAPI_URL", "RUNPOD_CONSOLE_URL"), url
    )
    with _talking(
        command, folder, {**urls, "RUNPOD_ENDPOINT_BASE_URL": f"{url}/v2", "RUNPOD_API_KEY": key}
    ) as client:
        yield client


@contextlib.contextmanager
def javascript_client(driver: str, folder: Path, url: str, key: str) -> Iterator[StockClient]:
    command = ["node", str(DRIVERS / driver), str(installed("js")), f"{url}/v2", key]
    with _talking(command, folder, {}) as client:
        yield client


@contextlib.contextmanager
def _talking(command: list[str], folder: Path, env: dict[str, str]) -> Iterator[StockClient]:
    """A home of its own: a config file of the person who runs the tests holds a real key."""
    folder.mkdir()
    log = folder / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
        )
    try:
        yield StockClient(process)
    finally:
        process.terminate()
        process.communicate()
        print(f"--- {log}\n{log.read_text()[-6000:]}")
