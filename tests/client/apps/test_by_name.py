"""A function that is called by name: at `stoker dev`, or at its deployed endpoint."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import httpx2
import pytest

from stoker.client import ClientError, JobFailed, NotFound, Unreachable
from stoker.client.apps import by_name
from stoker.client.records import JobRecord

SOURCE = """
from stoker.client import endpoint

@endpoint(name="-".join(["my", "caption"]))
def caption(image: bytes, words: int = 10): ...

@endpoint()
class Search:
    def add(self, text): ...
    @staticmethod
    def last(): ...
    def _own(self): ...
"""


class Platform:
    """As much of a client as a call by name uses. The newer of two endpoints with one name is used."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.names = ["other", "my-caption", "my-caption", "by-name-test-app-search"]
        self.manage = SimpleNamespace(endpoints=self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Closes nothing."""

    def list(self) -> list[dict[str, str]]:
        return [{"id": f"e{n}", "name": name} for n, name in enumerate(self.names)]

    def run(self, endpoint: str, values: dict[str, Any]) -> JobRecord:
        self.sent.append((endpoint, values))
        return JobRecord("job", "IN_QUEUE")

    def wait(self, endpoint: str, job: str) -> JobRecord:
        return JobRecord(job, "COMPLETED", {"$stoker": "bytes", "data": "aGk="})

    def upload(self, endpoint: str, path: Path) -> str:
        return f"https://store/{endpoint}/{path.stat().st_size}"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "by_name_test_app.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("by_name_test_app")
    del sys.modules["by_name_test_app"]


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Platform:
    made = Platform()
    monkeypatch.delenv(by_name.DEV_SERVER, raising=False)
    monkeypatch.setattr(by_name, "Client", lambda **options: made)
    return made


def test_a_deployed_endpoint_gets_the_parameters(app: ModuleType, platform: Platform) -> None:
    assert app.caption.remote(b"x", words=3) == b"hi"
    app.Search.add.remote("t")
    app.Search.last.remote()
    app.caption.remote(bytes(1 << 20))
    assert platform.sent == [
        ("e2", {"image": {"$stoker": "bytes", "data": "eA=="}, "words": 3}),
        ("e3", {"text": "t", "method": "add"}),
        ("e3", {"method": "last"}),
        ("e2", {"image": {"$stoker": "bytes", "url": f"https://store/e2/{1 << 20}"}}),
    ]
    assert not hasattr(app.Search._own, "remote")


def test_arguments_that_do_not_fit_and_names_that_are_not_there(app: ModuleType, platform: Platform) -> None:
    with pytest.raises(TypeError, match="image"):
        app.caption.remote(words=3)
    platform.names = []
    with pytest.raises(NotFound, match="no endpoint is named my-caption: deploy caption with stoker deploy"):
        app.caption.remote(b"x")
    assert platform.sent == []


@pytest.mark.parametrize(
    ("status", "answer", "raised", "why"),
    [
        (200, {"id": "j", "status": "COMPLETED", "output": 7}, None, ""),
        (500, {"id": "j", "status": "FAILED", "error": "ValueError: no"}, JobFailed, "ValueError: no"),
        (404, {"error": "no function caption"}, ClientError, "stoker dev refused caption: no function"),
        (0, None, Unreachable, "no answer from stoker dev at http://localhost:8888"),
    ],
)
def test_with_a_development_server_that_runs_it(
    app: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    answer: Any,
    raised: type[Exception] | None,
    why: str,
) -> None:
    asked: list[httpx2.Request] = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        if not status:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(status, json=answer)

    monkeypatch.setenv(by_name.DEV_SERVER, "http://localhost:8888/")
    monkeypatch.setattr(
        by_name.httpx2, "Client", partial(httpx2.Client, transport=httpx2.MockTransport(serve))
    )
    if raised is None:
        assert app.caption.remote(b"x") == 7
    else:
        with pytest.raises(raised, match=why):
            app.caption.remote(b"x")
    (request,) = asked
    assert (request.url.path, dict(request.url.params)) == (
        "/-/call",
        {"file": app.__file__, "function": "caption"},
    )
    assert json.loads(request.content) == {"input": {"image": {"$stoker": "bytes", "data": "eA=="}}}
