"""Functions of an app on a real platform: live, and deployed; with files, dependencies, and routes."""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy
import pytest

from stoker.app_values import decode
from stoker.client import AsyncClient, Client, JobFailed, Remote
from stoker.client.apps import resources
from stoker.client.apps.definition import Definition
from stoker.client.apps.requests import function_request, route_request, route_response
from tests.system.stack import Stack, running
from tests.worker.functions.function_apps import App, write_wheel

SOURCE = """
import os
import signal
import sys
from stoker.client import endpoint
from stoker.worker.functions import progress
from lib import doubled

@endpoint(name="caption", cpu=True, dependencies=["stokertestwheel"], env=PIP)
def caption(text: str):
    import stokertestwheel
    print("captioning", text)
    progress({"step": 1})
    return [doubled(text), stokertestwheel.VERSION]

@endpoint(name="shapes", cpu=True)
def shapes(data: bytes, array=None):
    return {"data": data[::-1], "sum": array.sum()}

@endpoint(name="words", cpu=True)
def words(text: str):
    yield from text.split()

@endpoint(name="fails", cpu=True)
def fails():
    raise ValueError("no")

@endpoint(name="spins", cpu=True)
def spins(deaf: bool = False, ends: bool = False):
    if deaf:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    print("begun")
    while not ends:
        pass
    return os.getpid()

api = endpoint(name="shop", cpu=True, workers=1)

@api.get("/items/{id}")
def item(id: int):
    return {"id": id, "text": doubled("x")}
"""


LIB = "def doubled(text):\n    return text * 2\n"
LARGE = f"# {random.Random(1).randbytes(500_000).hex()}\n"
"""Most of what an endpoint's variables may hold: it cannot be compressed to less than half."""


class Deployment:
    """An app and the endpoints that were made for it."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        write_wheel(folder / "wheels", "stokertestwheel", "1.0", "VERSION = '1.0'\n")
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "wheels")}
        files = {"02_app/app.py": SOURCE.replace("PIP", repr(pip))}
        self.app = App.write(folder / "app", files | {"lib.py": LIB})
        self.client = Client(stack.facts["http"], stack.key, timeout_s=120)
        self.stack = stack
        self._made: dict[tuple[str, bool], str] = {}

    def create(self, target: str, *, live: bool) -> str:
        """The id of the endpoint; each is made once."""
        if (target, live) in self._made:
            return self._made[target, live]
        endpoint, definition = self.of(target)
        name = f"live-{endpoint.name}" if live else endpoint.name
        code = None if live else self.app.bundle(target)
        body = resources.template_body(endpoint, definition, name=name, live=live, bundle=code)
        template = self.client.manage.templates.create(body)
        made = resources.endpoint_body(endpoint, definition, name=name, template_id=template["id"])
        self._made[target, live] = str(self.client.manage.endpoints.create(made)["id"])
        return self._made[target, live]

    def of(self, target: str) -> tuple[Any, Definition]:
        endpoint = self.app.endpoint(target)
        assert endpoint.definition is not None
        return endpoint, endpoint.definition

    def request(self, endpoint_id: str, target: str, **kwargs: Any) -> dict[str, Any]:
        endpoint, definition = self.of(target)

        def upload(data: bytes, name: str) -> str:
            file = self.stack.folder / name
            file.write_bytes(data)
            return self.client.upload(endpoint_id, file)

        return function_request(endpoint, target, kwargs, self.app.bundle(target), definition, upload=upload)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("apps")
    with running(folder, "functions = true\n") as stack:
        made = Deployment(stack, folder)
        yield made
        made.client.close()


@pytest.mark.slow
def test_a_function_runs_there_with_its_dependencies_and_changes_with_its_file(there: Deployment) -> None:
    endpoint = there.create("caption", live=True)
    job = there.client.run(endpoint, there.request(endpoint, "caption", text="ab"))
    lines = [
        event.value["line"]
        for event in there.client.logs(endpoint, job.id, follow=True)
        if event.kind == "log"
    ]
    assert there.client.wait(endpoint, job.id).output == ["abab", "1.0"]
    assert "captioning ab" in lines
    assert any("Installing collected packages: stokertestwheel" in line for line in lines)
    lib = there.app.root / "lib.py"
    before = lib.read_text()
    lib.write_text("def doubled(text):\n    return text + '!'\n")
    done = there.client.runsync(endpoint, there.request(endpoint, "caption", text="ab"))
    lib.write_text(before)
    assert (done.output, done.worker_id) == (["ab!", "1.0"], there.client.status(endpoint, job.id).worker_id)


@pytest.mark.slow
def test_large_arguments_and_results_go_through_the_object_store(there: Deployment) -> None:
    endpoint = there.create("shapes", live=True)
    data, array = bytes(range(256)) * 2000, numpy.ones((400, 400))
    request = there.request(endpoint, "shapes", data=data, array=array)
    assert "url" in request["kwargs"]["data"]
    done = there.client.runsync(endpoint, request)
    assert done.error is None
    assert done.output["data"]["url"].startswith("http")
    found = decode(done.output, lambda tagged: httpx2.get(tagged["url"], trust_env=False).content)
    assert (found["data"], found["sum"]) == (data[::-1], 160_000)


@pytest.mark.slow
def test_a_program_calls_the_function_by_its_name(there: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = there.create("shapes", live=True)
    monkeypatch.syspath_prepend(there.app.root)
    shapes = importlib.import_module("02_app.app").shapes

    async def call() -> Any:
        async with AsyncClient(there.stack.facts["http"], there.stack.key) as client:
            return await Remote(shapes, endpoint, client)(bytes(300_000), numpy.ones(3))

    try:
        found = asyncio.run(call())
    finally:
        for name in ("02_app.app", "02_app", "lib"):
            sys.modules.pop(name, None)
    assert (found["data"], found["sum"]) == (bytes(300_000), 3)


@pytest.mark.slow
def test_partial_output_and_failures_are_those_of_any_job(there: Deployment) -> None:
    endpoint = there.create("words", live=True)
    job = there.client.run(endpoint, there.request(endpoint, "words", text="a b"))
    assert list(there.client.stream(endpoint, job.id)) == ["a", "b"]
    assert there.client.wait(endpoint, job.id).output == ["a", "b"]
    endpoint = there.create("fails", live=True)
    job = there.client.run(endpoint, there.request(endpoint, "fails"))
    with pytest.raises(JobFailed, match="ValueError: no") as failed:
        there.client.wait(endpoint, job.id)
    assert 'File "02_app/app.py", line 26, in fails' in str(failed.value.job.error)


@pytest.mark.slow
def test_a_cancelled_function_stops_even_if_it_is_deaf(there: Deployment) -> None:
    """The process of the functions is killed, and not the worker."""
    endpoint = there.create("spins", live=True)
    done = [there.client.runsync(endpoint, there.request(endpoint, "spins", ends=True))]
    for deaf in (False, True):
        job = there.client.run(endpoint, there.request(endpoint, "spins", deaf=deaf))
        lines = there.client.logs(endpoint, job.id, follow=True)
        assert any(event.kind == "log" and event.value["line"] == "begun" for event in lines)
        assert there.client.cancel(endpoint, job.id).status == "CANCELLED"
        done.append(there.client.runsync(endpoint, there.request(endpoint, "spins", ends=True)))
    assert done[0].output == done[1].output != done[2].output
    assert done[0].worker_id == done[1].worker_id == done[2].worker_id


@pytest.mark.slow
def test_a_deployed_function_and_deployed_routes_have_their_code_in_their_version(there: Deployment) -> None:
    there.app.write(there.app.root, {"lib.py": LARGE + LIB})
    endpoint = there.create("caption", live=False)
    assert there.client.runsync(endpoint, {"text": "ab"}).output == ["abab", "1.0"]
    environments = there.stack.folder / "agent" / "environments"
    assert len(list(environments.glob("*/complete"))) == 1  # that of the live endpoint, if it ran
    shop = there.create("api", live=False)
    answer = there.stack.http.get(f"/{shop}/items/3")
    assert (answer.status_code, answer.json()) == (200, {"id": 3, "text": "xx"})
    assert there.stack.http.get(f"/{shop}/items/x").status_code == 422


@pytest.mark.slow
def test_routes_of_a_live_app_run_the_code_of_the_request(there: Deployment) -> None:
    shop = there.create("api", live=True)
    endpoint, definition = there.of("api")
    body = route_request(endpoint, there.app.bundle("api"), definition, method="GET", path="/items/3")
    answer = there.stack.http.post(f"/{shop}/execute", json=body)
    assert answer.status_code == 200, answer.text
    assert route_response(answer.json()).body == b'{"id": 3, "text": "xx"}'
