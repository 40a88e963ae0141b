"""Apps for the tests: their files, their requests, and wheels for their dependencies."""

from __future__ import annotations

import contextlib
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.client.apps.bundle import Bundle, bundle
from stoker.client.apps.requests import function_request
from stoker.client.apps.scan import scan
from stoker.client.apps.scanned import Endpoint
from stoker.worker.functions.handler import Functions
from stoker.worker.testing import LocalJob


@dataclass(frozen=True)
class App:
    root: Path

    @classmethod
    def write(cls, root: Path, files: Mapping[str, str]) -> App:
        for path, text in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return cls(root)

    def endpoint(self, target: str) -> Endpoint:
        found = scan(self.root)
        assert not found.problems, found.problems
        return next(one for one in found.endpoints if one.target == target)

    def bundle(self, target: str) -> Bundle:
        return bundle(self.root, self.endpoint(target).path)

    def request(self, qualname: str, **kwargs: Any) -> dict[str, Any]:
        endpoint = self.endpoint(qualname.partition(".")[0])
        assert endpoint.definition is not None
        return function_request(endpoint, qualname, kwargs, self.bundle(endpoint.target), endpoint.definition)


def write_wheel(folder: Path, name: str, version: str, source: str) -> None:
    """A wheel that pip installs, with one module."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", source)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@contextlib.contextmanager
def joined_watchers() -> Iterator[None]:
    """asyncio waits for each process in a thread, which lives a moment longer than the process. Those of
    processes that were there before are not waited for: servers that many tests share."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("asyncio-waitpid-"):
            thread.join(30)


async def run(handler: Functions, request: dict[str, Any], **more: Any) -> LocalJob:
    """A job of the handler's, run to its end."""
    return await LocalJob(handler.run, request, **more).run_async()
