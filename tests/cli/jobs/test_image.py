"""`stoker image` against a scripted service on loopback."""

from __future__ import annotations

import base64
import io
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from stoker.cli.access import find_key
from stoker.cli.consoles import plain_console
from stoker.cli.data_folder import write_private
from stoker.cli.errors import CliError
from stoker.cli.jobs import hosted_call
from stoker.cli.jobs.image_job import ImageOptions, lora_of, run, step_of
from stoker.cli.jobs.watch import watch
from stoker.cli.previews.choice import Choice, Wanted
from stoker.cli.previews.screen import Screen
from stoker.client import AsyncClient, BadRequest, Event, JobFailed
from tests.cli.jobs.hosted_service import RESULT, Service, at_once, serving
from tests.cli.previews.decoders import Grid


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted_call, "AsyncClient", partial(AsyncClient, sleep=at_once))
    monkeypatch.setattr(hosted_call, "watch", partial(watch, sleep=at_once))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("STOKER_API_KEY", "sk_1_2")
    made = Service("text-to-image", {"seed": 7, "cost": 0.02097152}, "image_url")
    made.events = [("progress", {"output": {"step": step, "steps": 4}}) for step in range(1, 5)]
    with serving(made):
        yield made


def run_image(service: Service, out: Path, **fields: Any) -> str:
    printed = io.StringIO()
    run(
        ImageOptions("a lighthouse", out, service.url, **fields),
        out.parent,
        plain_console(file=printed, width=1000),
    )
    return printed.getvalue()


def test_the_image_is_saved_and_cost_and_time_are_reported(service: Service, tmp_path: Path) -> None:
    printed = run_image(service, tmp_path / "out.png", width=512, steps=4, seed=7)
    assert (tmp_path / "out.png").read_bytes() == RESULT
    assert "4/4" in printed
    assert "seed 7: 0.02097152 USD, made in 0.81 s" in printed
    assert service.requests[0] == (
        "POST",
        "/v2/text-to-image/run",
        {
            "input": {
                "prompt": "a lighthouse",
                "width": 512,
                "num_inference_steps": 4,
                "seed": 7,
                "image_format": "png",
            }
        },
    )
    assert service.requests[-1] == ("GET", "/signed", None), "the signed URL gets no key"


def test_all_choices_of_a_job_are_options(service: Service, tmp_path: Path) -> None:
    start = tmp_path / "start.png"
    start.write_bytes(b"a picture")
    run_image(
        service,
        tmp_path / "out.png",
        number=2,
        scheduler="unipc",
        loras=(lora_of("ink=0.5"), lora_of("paper")),
        images=(str(start),),
        strength=0.4,
    )
    assert service.posted("/v2/text-to-image/files") == [("image/png", b"a picture")]
    (body,) = service.posted("/v2/text-to-image/run")
    assert body["input"] == {
        "prompt": "a lighthouse",
        "image_format": "png",
        "num_images": 2,
        "scheduler": "unipc",
        "loras": [{"name": "ink", "scale": 0.5}, {"name": "paper"}],
        "image": f"{service.url}/given/start.png",
        "strength": 0.4,
    }
    with pytest.raises(CliError, match=r"--lora takes NAME or NAME=SCALE, as ink=0\.8; got 'ink=much'"):
        lora_of("ink=much")
    with pytest.raises(CliError, match=r"there is no file nowhere\.png"):
        run_image(service, tmp_path / "out.png", images=("nowhere.png",))


@pytest.mark.parametrize("have", [("images",), ("image", "images"), ()])
def test_several_images_are_sent_as_a_list(service: Service, tmp_path: Path, have: tuple[str, ...]) -> None:
    service.properties = {name: {} for name in have}
    start = tmp_path / "start.png"
    start.write_bytes(b"a picture")
    run_image(service, tmp_path / "out.png", images=(str(start), "https://a.test/i.png"))
    (body,) = service.posted("/v2/text-to-image/run")
    assert body["input"]["images"] == [f"{service.url}/given/start.png", "https://a.test/i.png"]
    assert "image" not in body["input"]


def test_one_image_is_sent_as_the_endpoint_takes_it(service: Service, tmp_path: Path) -> None:
    for have in ((), ("image",), ("image", "images"), ("images",)):
        service.properties = {name: {} for name in have}
        run_image(service, tmp_path / "out.png", images=("https://a.test/i.png",))
    sent = [body["input"] for body in service.posted("/v2/text-to-image/run")]
    assert [one.get("image") for one in sent] == ["https://a.test/i.png"] * 3 + [None]
    assert [one.get("images") for one in sent] == [None] * 3 + [["https://a.test/i.png"]]


def test_several_images_are_refused_before_they_are_uploaded(service: Service, tmp_path: Path) -> None:
    service.properties = {"image": {}}
    start = tmp_path / "start.png"
    start.write_bytes(b"a picture")
    with pytest.raises(CliError, match="text-to-image starts from one image; --image was given 2 times"):
        run_image(service, tmp_path / "out.png", images=(str(start), str(start)))
    assert service.posted("") == []


def test_several_images_are_numbered_and_each_has_its_seed(service: Service, tmp_path: Path) -> None:
    url = service.record["output"]["image_url"]
    service.record["output"]["images"] = [{"image_url": url, "seed": seed} for seed in (7, 8)]
    (tmp_path / "out-2.png").write_bytes(b"mine")
    printed = run_image(service, tmp_path / "out.png", number=2)
    assert (tmp_path / "out.png").read_bytes() == (tmp_path / "out-3.png").read_bytes() == RESULT
    assert (tmp_path / "out-2.png").read_bytes() == b"mine"
    assert "out.png, seed 7: 0.02097152 USD" in printed
    assert "out-3.png, seed 8: the same job" in printed


def test_without_a_name_the_prompts_words_are_the_name(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        request = ImageOptions("A lighthouse, in a STORM!", url=service.url)
        run(request, tmp_path, plain_console(file=io.StringIO(), width=1000))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a-lighthouse-in-a-storm.png", "a-lighthouse-in-a-storm-2.png"}
    bodies = service.posted("/v2/text-to-image/run")
    assert {body["input"]["image_format"] for body in bodies} == {"png"}, "whatever the endpoint's default is"
    run(ImageOptions("!?", url=service.url), tmp_path, plain_console(file=io.StringIO(), width=1000))
    assert (tmp_path / "image.png").exists()


@pytest.mark.parametrize(
    ("reported", "printed"),
    [
        ({"pipeline": "flux-1-schnell"}, "seed 7, by flux-1-schnell: 0.02097152 USD"),
        (
            {"pipeline": "flux-tiny", "made_up_weights": True},
            "seed 7, by flux-tiny, whose weights are made up: 0.02097152 USD",
        ),
        ({"pipeline": 3}, "seed 7: 0.02097152 USD"),
    ],
)
def test_the_pipeline_that_made_it_is_reported(
    service: Service, tmp_path: Path, reported: dict[str, Any], printed: str
) -> None:
    service.record["output"] |= reported
    assert printed in run_image(service, tmp_path / "out.png")


def test_what_was_drawn_otherwise_is_said(service: Service, tmp_path: Path) -> None:
    said = ['Drawn instead: cat for "chat".', "Without effect with flux-mini: guidance."]
    service.record["output"] |= {"notes": [*said, 3]}
    assert run_image(service, tmp_path / "out.png").splitlines()[-2:] == said


@pytest.mark.parametrize("notes", ["no list", {"a": 1}, None])
def test_notes_of_another_kind_are_left_out(service: Service, tmp_path: Path, notes: Any) -> None:
    service.record["output"] |= {"notes": notes}
    assert "made in" in run_image(service, tmp_path / "out.png").splitlines()[-1]


def test_a_stream_that_breaks_off_loses_nothing(service: Service, tmp_path: Path) -> None:
    service.breaks = 2
    run_image(service, tmp_path / "out.jpg")
    assert (tmp_path / "out.jpg").read_bytes() == RESULT
    assert service.requests.count(("GET", "/v2/text-to-image/stream/j-u1", "Bearer sk_1_2")) == 3


def test_a_job_that_failed_is_reported_and_nothing_is_written(service: Service, tmp_path: Path) -> None:
    service.record = {"id": "j-u1", "status": "FAILED", "error": "out of memory"}
    with pytest.raises(JobFailed, match="FAILED: out of memory"):
        run_image(service, tmp_path / "out.png")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_input_is_reported(service: Service, tmp_path: Path) -> None:
    service.run_answer = (400, {"id": "j", "status": "FAILED", "error": "width is 1000"})
    with pytest.raises(BadRequest, match="width is 1000"):
        run_image(service, tmp_path / "out.png", width=1000)


def test_another_kind_of_file_is_refused_before_any_request(service: Service, tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"must end in one of \.png, \.jpg, \.jpeg"):
        run_image(service, tmp_path / "out.gif")
    assert service.requests == []


def test_a_missing_folder_is_refused_before_any_request(service: Service, tmp_path: Path) -> None:
    with pytest.raises(CliError, match=f"there is no folder {tmp_path / 'none'} to write"):
        run_image(service, tmp_path / "none" / "out.png")
    assert service.requests == []
    assert list(tmp_path.iterdir()) == []


def test_nobody_at_the_address_is_reported_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_API_KEY", "sk_1_2")
    with socket.socket() as taken:  # bound and not listening: refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CliError, match=rf"refused; is `stoker up` running at {url}\?"):
            run(ImageOptions("a lighthouse", tmp_path / "out.png", url), tmp_path, plain_console())


def test_the_key_that_up_keeps_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOKER_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CliError, match="no API key: set STOKER_API_KEY"):
        find_key(tmp_path)
    write_private(tmp_path / "api_key", "sk_kept_1\n")
    assert find_key(tmp_path) == "sk_kept_1"
    (tmp_path / ".env").write_text("STOKER_API_KEY=sk_env_1\n")
    assert find_key(tmp_path) == "sk_env_1"


def test_previews_are_drawn_above_the_bar(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    service.events = [
        event
        for step, colour in enumerate(("red", "lime", "blue"), 1)
        for event in (
            ("progress", {"output": {"step": step, "steps": 3}}),
            ("chunk", {"output": {"preview": preview_in(colour)}}),
        )
    ]
    service.events.insert(2, ("reset", {"attempt": 2}))
    printed = io.StringIO()
    console = plain_console(file=printed, width=80)
    screen = Screen(console, Choice(Wanted.BLOCKS, "", True))
    run(ImageOptions("a lighthouse", tmp_path / "out.png", service.url), tmp_path, console, screen)
    grid = Grid(printed.getvalue())
    found = grid.blocks()
    first, last = ({row for (row, _), codes in found.items() if codes[0] == colour} for colour in (RED, BLUE))
    assert (len(first), len(last)) == (16, 16), "one place before the worker was lost, and one after"
    assert max(first) < min(last)
    assert LIME not in {codes[0] for codes in found.values()}, "the next preview is drawn over it"
    assert "3/3" in grid.line(max(last) + 1), "the bar is below"
    assert "seed 7" in grid.text()


RED, LIME, BLUE = "2;255;0;0", "2;0;255;0", "2;0;0;255"


def preview_in(colour: str) -> dict[str, Any]:
    file = io.BytesIO()
    Image.new("RGB", (16, 16), colour).save(file, "PNG")
    return {"step": 1, "format": "png", "data": base64.b64encode(file.getvalue()).decode()}


# ---- endpoints of one's own


def test_an_output_without_a_cost_is_downloaded(service: Service, tmp_path: Path) -> None:
    service.record["output"] = {"image_url": f"{service.url}/signed"}
    printed = run_image(service, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes() == RESULT
    assert "out.png: no cost reported, made in 0.81 s" in printed


@pytest.mark.parametrize(
    "around",
    [
        lambda url: {"result": url, "cost": 0.5},
        lambda url: {"images": [{"url": url, "seed": 3}]},
        lambda url: [url],
        lambda url: url,
        lambda url: {"image_url": None, "first": url, "again": url},
    ],
)
def test_the_only_url_of_an_output_is_downloaded(service: Service, tmp_path: Path, around: Any) -> None:
    service.record["output"] = around(f"{service.url}/signed")
    run_image(service, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes() == RESULT


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        ({"text": "no picture"}, 'no \'image_url\' and no other URL, .*: {"text": "no picture"}'),
        (None, "no 'image_url' and no other URL, .*: null"),
        ({"a": "http://x/1", "b": ["https://x/2"]}, "2 URLs and no 'image_url' among them"),
        ({"image": "A" * 1000}, r"A… \(1,013 characters\)"),
    ],
)
def test_an_output_without_an_image_is_shown(
    service: Service, tmp_path: Path, output: Any, printed: str
) -> None:
    service.record["output"] = output
    with pytest.raises(
        CliError, match=f"job j-u1 of text-to-image COMPLETED, and its output has .*{printed}"
    ):
        run_image(service, tmp_path / "out.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "value", "step"),
    [
        ("progress", {"output": {"step": 3, "steps": 28}}, (3, 28)),
        ("chunk", {"output": {"step": 3, "steps": 28, "preview": "…"}}, (3, 28)),
        ("progress", {"output": {"step": 3}}, None),
        ("progress", {"output": "half"}, None),
        ("chunk", [], None),
        ("reset", {"attempt": 2}, None),
    ],
)
def test_events_with_a_step(kind: str, value: Any, step: tuple[int, int] | None) -> None:
    found = step_of(Event(kind, "1-0", value))
    assert (None if found is None else (found.done, found.of)) == step
