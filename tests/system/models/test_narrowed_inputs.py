"""A pipeline's file whose endpoint allows less than the pipeline takes: the bounds hold at every door."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import httpx2
import pytest
from PIL import Image

from tests.system.stack import SOURCE, Stack, fetched

CONFIG = """
local_roots = ["pipelines"]

[[endpoints]]
id = "ours"
imageName = "local:pipelines/ours.py:Ours"
workersMin = 1

[endpoints.inputSchema.properties]
width = { maximum = 512 }
height = { maximum = 512 }
num_images = { maximum = 4 }
num_inference_steps = { maximum = 2 }
image_format = { enum = ["png"] }
"""
FILE = """
from stoker.models.registry import PIPELINES
from stoker.models.text_to_image.handler import TextToImage


class Ours(TextToImage):
    PIPELINE = PIPELINES["flux-tiny"]
"""
PROMPT = {"prompt": "a lighthouse"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("narrowed")
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "ours.py").write_text(FILE)
    made = Stack(folder)
    made.config.write_text(CONFIG)
    with contextlib.ExitStack() as ended:
        ended.callback(made.stop)
        made.start()
        yield made


def picture(url: str) -> tuple[str | None, tuple[int, int]]:
    with Image.open(io.BytesIO(fetched(url).raise_for_status().content)) as opened:
        return opened.format, opened.size


def stoker_image(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`stoker image` of a user with the endpoint's key."""
    places = ["--url", stack.facts["http"], "--endpoint", "ours", "--data-dir", str(stack.folder / "none")]
    return subprocess.run(
        [sys.executable, "-P", "-m", "stoker.cli", "image", "a lighthouse", *places, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "STOKER_API_KEY": stack.key, "COLUMNS": "400"},
        cwd=stack.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_prompt_alone_is_a_picture_within_the_bounds(stack: Stack) -> None:
    record = stack.runsync("ours", PROMPT)
    assert record["status"] == "COMPLETED", record
    assert picture(record["output"]["image_url"]) == ("PNG", (512, 512))
    door = stack.http.post("/ours/openai/v1/images/generations", json=PROMPT, timeout=120)
    assert picture(door.json()["data"][0]["url"]) == ("PNG", (512, 512))
    made = stoker_image(stack, "-o", "made.png")
    assert made.returncode == 0, made.stderr
    with Image.open(stack.folder / "made.png") as opened:
        assert opened.size == (512, 512)


@pytest.mark.slow
def test_what_the_endpoint_does_not_take_is_refused_at_once(stack: Stack) -> None:
    for wrong, message in (
        ({"num_images": 10}, "num_images must be at most 4, got 10; allowed: integers 1 to 4"),
        ({"sede": 7}, "sede is not a known field, got 7; allowed: prompt, negative_prompt, width"),
        ({"width": 1024}, "width must be at most 512, got 1024; allowed: 256 to 512 in steps of 64"),
    ):
        refused = stack.http.post("/ours/run", json={"input": PROMPT | wrong})
        assert refused.status_code == 400
        assert message in refused.json()["error"]
    door = stack.http.post("/ours/openai/v1/images/generations", json=PROMPT | {"size": "1024x512"})
    assert door.status_code == 400
    assert "width must be at most 512, got 1024" in door.json()["error"]["message"]
    typed = stoker_image(stack, "-n", "10")
    assert typed.returncode == 1
    assert "num_images must be at most 4, got 10" in typed.stderr
    jobs = stack.health("ours")["jobs"]
    assert (jobs["inQueue"], jobs["inProgress"], jobs["failed"]) == (0, 0, 0)


@pytest.mark.slow
def test_the_document_shows_the_narrowed_schema(stack: Stack) -> None:
    document = httpx2.get(f"{stack.facts['http']}/openapi.json", trust_env=False).json()
    schema = document["components"]["schemas"]["ours.input"]
    assert (schema["properties"]["width"]["maximum"], schema["properties"]["width"]["default"]) == (512, 512)
    assert schema["properties"]["num_inference_steps"]["default"] == 2
    assert json.dumps(schema["additionalProperties"]) == "false"
