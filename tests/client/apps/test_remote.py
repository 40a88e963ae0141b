"""A function that is called at its endpoint: what is sent, and what is made of the answer."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

from stoker.client import ClientError, Remote
from stoker.client.apps.definition import DefinitionError
from stoker.client.records import JobRecord

SOURCE = """
from stoker.client import endpoint
import remote_test_helper

@endpoint(name="caption", workers=int("2"))
def caption(image: bytes, words: int = 10, **rest): ...

@endpoint()
class Search:
    def add(self, text): ...

def plain(): ...

def made():
    @endpoint()
    def inner(): ...
    return inner
"""


class Platform:
    """As much of a client as `Remote` uses."""

    def __init__(self, output: Any = None) -> None:
        self.output = output
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.uploaded: dict[str, int] = {}

    async def run(self, endpoint: str, request: dict[str, Any]) -> JobRecord:
        self.sent.append((endpoint, request))
        return JobRecord("job", "IN_QUEUE")

    async def wait(self, endpoint: str, job: str) -> JobRecord:
        return JobRecord(job, "COMPLETED", self.output)

    async def upload(self, endpoint: str, path: Path) -> str:
        self.uploaded[path.name] = len(await asyncio.to_thread(path.read_bytes))
        return f"https://store/{path.name}"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "remote_test_package"
    folder.mkdir()
    (folder / "captions.py").write_text(SOURCE)
    (tmp_path / "remote_test_helper.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("remote_test_package.captions")
    for name in [one for one in sys.modules if one.startswith("remote_test_")]:
        del sys.modules[name]


def remote(function: Callable[..., Any], platform: Any) -> Remote:
    return Remote(function, "e1", platform)


async def test_what_is_sent_is_the_code_and_the_arguments_by_name(app: ModuleType) -> None:
    platform = Platform({"$stoker": "bytes", "data": "aGk="})
    assert await remote(app.caption, platform)(b"x", words=3, more=True) == b"hi"
    (endpoint, request) = platform.sent[0]
    assert (endpoint, request["function"]) == (
        "e1",
        {"module": "remote_test_package.captions", "callable": "caption"},
    )
    assert request["kwargs"] == {"image": {"$stoker": "bytes", "data": "eA=="}, "words": 3, "more": True}
    assert request["folder"] == "remote_test_package"
    await remote(app.Search.add, platform)("t")
    assert platform.sent[1][1]["function"]["callable"] == "Search.add"
    assert platform.sent[1][1]["kwargs"] == {"text": "t"}


async def test_much_is_uploaded(app: ModuleType) -> None:
    platform = Platform()
    await remote(app.caption, platform)(bytes(1 << 20))
    assert platform.uploaded == {"argument": 1 << 20}
    assert platform.sent[0][1]["kwargs"]["image"]["url"] == "https://store/argument"


async def test_arguments_that_do_not_fit_are_not_sent(app: ModuleType) -> None:
    platform = Platform()
    with pytest.raises(TypeError, match="image"):
        await remote(app.caption, platform)(words=3)
    assert platform.sent == []


def test_only_a_declared_function_is_remote(app: ModuleType) -> None:
    with pytest.raises(DefinitionError, match="plain has no endpoint; decorate it"):
        remote(app.plain, Platform())
    with pytest.raises(DefinitionError, match="has no endpoint"):
        remote(app.made(), Platform())


async def test_a_stored_result_is_fetched_and_compared(
    app: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = 200

    def get(url: str, **more: Any) -> httpx2.Response:
        return httpx2.Response(status, content=b'{"a": 1}', request=httpx2.Request("GET", url))

    monkeypatch.setattr(httpx2, "get", get)
    stored = {"output_url": "https://store/x?signature=secret", "size": 8}
    right = Platform(stored | {"sha256": hashlib.sha256(b'{"a": 1}').hexdigest()})
    assert await remote(app.caption, right)(b"x") == {"a": 1}
    with pytest.raises(ClientError, match="not the one"):
        await remote(app.caption, Platform(stored | {"sha256": "0" * 64}))(b"x")
    status = 403
    with pytest.raises(ClientError, match="gave 403") as caught:
        await remote(app.caption, right)(b"x")
    assert "secret" not in str(caught.value)
