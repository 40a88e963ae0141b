"""The examples run: each handler by `stoker predict`'s own means, each configuration, each command."""

from __future__ import annotations

import json
import shlex
import threading
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

from stoker.control.config.config import load_config
from stoker.worker.testing import LocalJob
from tests.documentation.pages import Page
from tests.load_module import load_module

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))


def module(path: str) -> ModuleType:
    return load_module(f"example_{Path(path).parent.name}", EXAMPLES / path)


def ran(target: Any, job_input: dict[str, Any]) -> LocalJob:
    job = LocalJob(target, job_input)
    job.run()
    return job


def test_every_folder_is_in_the_table() -> None:
    table = (EXAMPLES / "README.md").read_text()
    assert len(FOLDERS) >= 5
    assert all(f"[{name}]({name}/README.md)" in table for name in FOLDERS)


@pytest.mark.parametrize("folder", [name for name in FOLDERS if (EXAMPLES / name / "stoker.toml").exists()])
def test_each_configuration_declares_the_endpoint_that_its_readme_calls(folder: str) -> None:
    config = load_config(EXAMPLES / folder / "stoker.toml")
    [endpoint] = config.endpoints
    text = (EXAMPLES / folder / "README.md").read_text()
    assert f"job run {endpoint.id} " in text or f"/v2/{endpoint.id}/" in text


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_readme_names_commands_that_exist(folder: str) -> None:
    from tests.cli.every_command import EXAMPLES as COMMANDS

    known = {words.split()[0] for words in COMMANDS}
    for block in Page.read(EXAMPLES / folder / "README.md").blocks("sh"):
        for line in block.text.splitlines():
            words = shlex.split(line)
            assert words[0] in ("stoker", "curl", "python"), line
            assert words[0] != "stoker" or words[1] in known, line


def test_hello() -> None:
    handler = module("hello/handler.py").handler
    assert ran(handler, {"name": "Ada"}).output == {"greeting": "Hello, Ada!"}
    assert "name is missing" in str(ran(handler, {}).error)


def test_words_are_streamed_and_a_cancel_ends_them() -> None:
    handler = module("words/handler.py").handler
    assert ran(handler, {"text": "one two three", "pause": 0}).chunks == ["one", "two", "three"]


def test_a_picture_is_drawn_with_previews() -> None:
    job = ran(module("picture/handler.py").Rings, {"rings": 4, "side": 128})
    assert job.error is None
    assert len(job.chunks) == 4
    with Image.open(BytesIO(job.output["image_url"].read_bytes())) as image:
        assert image.size == (128, 128)
        assert image.getpixel((64, 64)) != image.getpixel((64, 2))


def test_functions_of_the_app_are_functions() -> None:
    captions = module("app/captions.py")
    assert captions.shout("hello", times=2) == "HELLO!!"


def test_the_server_answers_pings_and_requests() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), module("http_server/server.py").Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        for method, path, body, status, expected in (
            ("GET", "/ping", None, 200, {"status": "healthy"}),
            ("POST", "/reverse", json.dumps({"text": "abc"}), 200, {"reversed": "cba"}),
            ("POST", "/reverse", "{", 422, {"error": "the body must be a JSON object with a text"}),
        ):
            connection.request(method, path, body)
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())) == (status, expected)
        connection.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
