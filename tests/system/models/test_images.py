"""The main job end to end: a prompt goes in, previews stream by, an image comes out behind a signed URL."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from stoker.models.text_to_image import metadata
from tests.conformance.stock_client import Raised, StockClient, javascript_client, python_client
from tests.system.faults.test_killed_at_random import children
from tests.system.stack import Stack, fetched, running

SMALL = {"prompt": "a lighthouse in a storm", "width": 256, "height": 256, "num_inference_steps": 4}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with contextlib.ExitStack() as living:
        with on_one_core():
            folder = tmp_path_factory.mktemp("pictures")
            made = living.enter_context(running(folder, hosted=("text-to-image",), executed=True))
        yield made


@pytest.fixture(scope="module")
def python(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockClient]:
    folder = tmp_path_factory.mktemp("clients") / "python"
    with python_client("openai_python.py", folder, stack.facts["http"], stack.key) as client:
        yield client


@pytest.fixture(scope="module")
def javascript(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockClient]:
    folder = tmp_path_factory.mktemp("clients") / "javascript"
    with javascript_client("openai.mjs", folder, stack.facts["http"], stack.key) as client:
        yield client


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """What is executed in here stays there: torch's threads would wait for each other, and not sleep."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def image_of(stack: Stack, **job_input: Any) -> tuple[dict[str, Any], bytes]:
    record = stack.runsync("text-to-image", SMALL | job_input)
    assert record["status"] == "COMPLETED", record
    return record, fetched(record["output"]["image_url"]).raise_for_status().content


def test_a_prompt_becomes_an_image_with_previews_on_the_way(stack: Stack, tmp_path: Path) -> None:
    job_input = SMALL | {"width": 512, "height": 512, "seed": 7, "image_format": "png"}
    job = stack.run("text-to-image", job_input)
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
    assert json.dumps(record["output"]["cost"]) == "0.00524288"
    assert record["output"]["seed"] == 7
    assert (record["output"]["pipeline"], record["output"]["made_up_weights"]) == ("flux-tiny", True)
    slug = "/black-forest-labs-flux-1-dev"
    assert stack.http.get(f"{slug}/status/{job}").json() == record
    url = f"{stack.facts['http']}/v1/endpoints"
    listed = stack.http.get(url).json()
    assert [one["id"] for one in listed] == ["text-to-image"], "each endpoint once"
    [serves] = stack.http.get("/text-to-image/health").json()["serves"]
    assert serves.startswith("flux-tiny, whose weights are made up (")
    assert f"of endpoint text-to-image runs {serves}" in (stack.folder / "agent.log").read_text()
    assert record["delayTime"] >= 0
    assert record["executionTime"] > 0
    assert record["workerId"]
    answer = fetched(record["output"]["image_url"])
    image = Image.open(io.BytesIO(answer.content))
    assert (image.size, image.format) == ((512, 512), "PNG")
    assert answer.headers["content-type"] == "image/png"
    (tmp_path / "picture.png").write_bytes(answer.content)
    reported = metadata.read(tmp_path / "picture.png")
    assert reported is not None
    assert (reported["seed"], reported["steps"], reported["pipeline"], reported["profile"]) == (
        7,
        4,
        "flux-tiny",
        "exact",
    )
    assert len(reported["weights"]) == len("sha256:") + 64


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(stack: Stack) -> None:
    first, again, other = (image_of(stack, seed=seed)[1] for seed in (11, 11, 12))
    assert first == again
    assert first != other


def test_minus_one_draws_another_seed_each_time_and_reports_it(stack: Stack) -> None:
    (first, drawn), (second, _) = image_of(stack, seed=-1), image_of(stack)
    assert first["output"]["seed"] != second["output"]["seed"]
    assert image_of(stack, seed=first["output"]["seed"])[1] == drawn


def test_jpeg_is_the_default_format(stack: Stack) -> None:
    assert Image.open(io.BytesIO(image_of(stack, seed=1)[1])).format == "JPEG"


@pytest.mark.parametrize(
    ("job_input", "named"),
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
    stack: Stack, job_input: dict[str, Any], named: list[str]
) -> None:
    for operation in ("run", "runsync"):
        answer = stack.http.post(f"/text-to-image/{operation}", json={"input": SMALL | job_input})
        assert answer.status_code == 400
        body = answer.json()
        assert body["status"] == "FAILED"
        for word in named:
            assert word in body["error"]
        assert stack.http.get(f"/text-to-image/status/{body['id']}").status_code == 404


@pytest.mark.slow
def test_a_hosted_timeout_reads_failed_with_that_reason(stack: Stack) -> None:
    image_of(stack, seed=2)  # its worker is there, and has nothing to do
    [worker] = children(stack, "stoker.worker.runtime")
    worker.suspend()  # it is given the next job, and neither ends it nor hears a cancel
    record = stack.runsync("text-to-image", SMALL, policy={"executionTimeout": 5000})
    assert record["status"] == "FAILED"
    assert "executionTimeout" in record["error"] or "timed out" in record["error"]
    assert image_of(stack, seed=3)[0]["status"] == "COMPLETED"


def test_the_official_openai_clients_make_the_same_images(
    stack: Stack, python: StockClient, javascript: StockClient
) -> None:
    """`seed` and `num_inference_steps` are ours; the Python client sends such fields as `extra_body`."""
    wanted = [image_of(stack, seed=seed)[1] for seed in (7, 8)]
    job_input = {"model": "any", "prompt": SMALL["prompt"], "size": "256x256", "n": 2}
    own = {"seed": 7, "num_inference_steps": 4}
    to = {"endpoint": "text-to-image", "key": stack.key}
    assert python.ask("models", **to) == ["text-to-image"]
    made = python.ask("image", **to, given={**job_input, "response_format": "b64_json", "extra_body": own})
    assert [_opened(one).size for one in made] == [(256, 256)] * 2
    assert [base64.b64decode(one["b64_json"]) for one in made] == wanted
    with pytest.raises(Raised, match="width must be at least 256, got 200") as raised:
        python.ask("image", **to, given={**job_input, "size": "200x256"})
    assert raised.value.status == 400
    made = javascript.ask("image", **to, given={**job_input, **own})
    assert [fetched(one["url"]).content for one in made] == wanted
    assert [one["seed"] for one in made] == [7, 8]


NAMED = {"model": "text-to-image", "prompt": SMALL["prompt"], "size": "256x256"}
SEEDED = {"seed": 7, "num_inference_steps": 4}


def test_the_official_openai_clients_stream_partial_images_at_one_base_url(
    stack: Stack, python: StockClient, javascript: StockClient
) -> None:
    to = {"endpoint": "", "key": stack.key}
    given = {**NAMED, "partial_images": 1, "output_format": "png"}
    assert python.ask("models", **to) == ["text-to-image"]
    [partial, last] = python.ask("image_stream", **to, given={**given, "extra_body": SEEDED})
    assert (partial["type"], partial["partial_image_index"]) == ("image_generation.partial_image", 0)
    assert _opened(partial).size == (128, 128)
    assert (last["type"], last["size"]) == ("image_generation.completed", "256x256")
    assert base64.b64decode(last["b64_json"]) == image_of(stack, seed=7, image_format="png")[1]
    *_, again = javascript.ask("image_stream", **to, given={**given, **SEEDED})
    assert (again["type"], again["b64_json"]) == (last["type"], last["b64_json"])


def test_the_official_openai_client_edits_an_image(stack: Stack, python: StockClient, tmp_path: Path) -> None:
    start = tmp_path / "start.png"
    Image.new("RGB", (256, 256), "navy").save(start)
    to = {"endpoint": "", "key": stack.key, "images": [str(start)]}
    edit = {**NAMED, "extra_body": {**SEEDED, "strength": 0.5}}
    [edited] = python.ask("edit", **to, given={**edit, "response_format": "b64_json"})
    assert _opened(edited).size == (256, 256)
    [streamed] = python.ask("edit", **to, given={**edit, "stream": True})
    assert streamed["type"] == "image_edit.completed"
    assert streamed["b64_json"] == edited["b64_json"], "the same edit"
    assert (
        streamed["usage"]["input_tokens_details"]["image_tokens"] == streamed["usage"]["output_tokens"] == 256
    )
    mask, erased = tmp_path / "mask.png", Image.new("RGBA", (256, 256), "navy")
    erased.paste((0, 0, 0, 0), (0, 0, 128, 256))
    erased.save(mask)
    [part] = python.ask("edit", **to, given={**edit, "response_format": "b64_json", "mask": str(mask)})
    assert part["b64_json"] != edited["b64_json"]
    with pytest.raises(Raised, match="starts from one image; got 2: flux-2-klein-4b takes several"):
        python.ask("edit", **to | {"images": [str(start)] * 2}, given=edit)


def _opened(event: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(event["b64_json"])))
