"""The main job end to end: a prompt goes in, previews stream by, a picture comes out behind a signed URL."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
from stack import Stack, fetched, running

from stoker.models.text_to_image import metadata

SMALL = {"prompt": "a lighthouse in a storm", "width": 256, "height": 256, "num_inference_steps": 4}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with running(tmp_path_factory.mktemp("pictures"), hosted=("text-to-image",)) as made:
        yield made


def picture(stack: Stack, **given: Any) -> tuple[dict[str, Any], bytes]:
    record = stack.runsync("text-to-image", SMALL | given)
    assert record["status"] == "COMPLETED", record
    return record, fetched(record["output"]["image_url"]).raise_for_status().content


def test_a_prompt_becomes_a_picture_with_previews_on_the_way(stack: Stack, tmp_path: Path) -> None:
    given = SMALL | {"width": 1024, "height": 1024, "seed": 7, "image_format": "png"}
    job = stack.run("text-to-image", given)
    chunks: list[dict[str, Any]] = []
    while True:
        poll = stack.http.get(f"/text-to-image/stream/{job}?wait=60000").json()
        chunks += [chunk["output"] for chunk in poll["stream"]]
        if poll["status"] not in {"IN_QUEUE", "IN_PROGRESS"}:
            break
    assert poll["status"] == "COMPLETED"
    previews = [chunk["preview"] for chunk in chunks]
    assert previews
    for preview in previews:
        Image.open(io.BytesIO(base64.b64decode(preview["data"]))).load()
    record = stack.end_of("text-to-image", job)
    assert json.dumps(record["output"]["cost"]) == "0.02097152"
    assert record["output"]["seed"] == 7
    assert record["delayTime"] >= 0
    assert record["executionTime"] > 0
    assert record["workerId"]
    answer = fetched(record["output"]["image_url"])
    image = Image.open(io.BytesIO(answer.content))
    assert (image.size, image.format) == ((1024, 1024), "PNG")
    assert answer.headers["content-type"] == "image/png"
    (tmp_path / "picture.png").write_bytes(answer.content)
    told = metadata.read(tmp_path / "picture.png")
    assert told is not None
    assert (told["seed"], told["steps"], told["pipeline"], told["profile"]) == (7, 4, "flux-tiny", "exact")
    assert len(told["weights"]) == len("sha256:") + 64


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(stack: Stack) -> None:
    first, again, other = (picture(stack, seed=seed)[1] for seed in (11, 11, 12))
    assert first == again
    assert first != other


def test_minus_one_draws_another_seed_each_time_and_tells_it(stack: Stack) -> None:
    (first, drawn), (second, _) = picture(stack, seed=-1), picture(stack)
    assert first["output"]["seed"] != second["output"]["seed"]
    assert picture(stack, seed=first["output"]["seed"])[1] == drawn


def test_jpeg_is_the_default_format(stack: Stack) -> None:
    assert Image.open(io.BytesIO(picture(stack, seed=1)[1])).format == "JPEG"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"width": 1000}, ["width", "1000", "64"]),
        ({"width": 64}, ["width", "64", "256"]),
        ({"num_inference_steps": 0}, ["num_inference_steps", "0", "1"]),
        ({"num_inference_steps": 51}, ["num_inference_steps", "51", "50"]),
        ({"guidance": -1}, ["guidance", "-1", "0"]),
        ({"seed": 1.5}, ["seed", "1.5", "integer"]),
        ({"image_format": "gif"}, ["image_format", "gif", "png", "jpeg"]),
        ({"prompt": ""}, ["prompt"]),
        ({"prompt": 7}, ["prompt", "7", "string"]),
    ],
)
def test_bad_input_is_refused_before_it_is_queued(
    stack: Stack, given: dict[str, Any], named: list[str]
) -> None:
    for operation in ("run", "runsync"):
        answer = stack.http.post(f"/text-to-image/{operation}", json={"input": SMALL | given})
        assert answer.status_code == 400
        body = answer.json()
        assert body["status"] == "FAILED"
        for word in named:
            assert word in body["error"]
        assert stack.http.get(f"/text-to-image/status/{body['id']}").status_code == 404


def test_a_hosted_timeout_reads_failed_with_that_reason(stack: Stack) -> None:
    picture(stack, seed=2)  # its worker is there, and has nothing to do
    [worker] = [
        p for p in psutil.Process(stack.agent.pid).children() if "stoker.worker.runtime" in p.cmdline()
    ]
    worker.suspend()  # it is given the next job, and neither ends it nor hears a cancel
    record = stack.runsync("text-to-image", SMALL, policy={"executionTimeout": 5000})
    assert record["status"] == "FAILED"
    assert "executionTimeout" in record["error"] or "timed out" in record["error"]
    assert picture(stack, seed=3)[0]["status"] == "COMPLETED"
