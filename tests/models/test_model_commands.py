"""`stoker model`: lists, shows, runs and times pipelines without a platform."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.errors import CliError
from stoker.cli.main import main
from stoker.cli.model import timing
from stoker.models.registry import PIPELINES, pipeline

SMALL = ("--set", "width=256", "--set", "height=256", "--set", "num_inference_steps=3", "--cpu")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("STOKER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path / "w"))
    monkeypatch.setenv("STOKER_PIPELINE", "")


def stoker(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["model", *arguments])
    printed = capfd.readouterr()
    assert ended.value.code is None or isinstance(ended.value.code, int)
    return ended.value.code or 0, printed.out, printed.err


def records(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = stoker(capfd, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_the_list_has_every_pipeline_and_what_its_weights_need(capfd: pytest.CaptureFixture[str]) -> None:
    found = {record["name"]: record for record in records(capfd, "list")}
    assert list(found) == list(PIPELINES)
    assert "stoker weights fetch flux-1-schnell" in found["flux-1-schnell"]["weights"]
    assert found["flux-tiny"]["weights"] == "made when they are needed"
    assert found["sdxl"]["licence"] == "CreativeML Open RAIL++-M"


def test_one_is_shown_with_defaults_inputs_and_price(capfd: pytest.CaptureFixture[str]) -> None:
    found = records(capfd, "show", "sdxl")
    assert (found["steps"], found["guidance"], found["negative_prompt"]) == (50, 5.0, True)
    width = found["inputs"]["width"]
    assert (width["minimum"], width["maximum"], width["multipleOf"], width["default"]) == (
        256,
        1536,
        64,
        1024,
    )
    assert found["inputs"]["num_inference_steps"]["default"] == found["steps"]
    assert found["inputs"]["scheduler"]["enum"][:3] == ["euler", "euler-a", "heun"]
    assert found["prices"] == {"output_pixels": 20e-9}
    table = stoker(capfd, "show", "sdxl")[1]
    assert "integer 256 to 1536, divisible by 64; 1024 by default" in table
    assert f"integer 1 to 50; {found['steps']} by default" in table
    assert "euler or euler-a or heun or " in table
    assert "inputs\tprompt: string\n" in table, "a line for each"
    assert "prices\toutput_pixels: 0.000000020 USD\n" in table
    assert "negative prompt\tused\n" in table
    assert "steps" in table
    assert records(capfd, "show", "talk-tiny")["steps"] is None


def test_the_memory_of_a_gpu_is_bytes_by_profile_in_json_and_words_in_a_table(
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = records(capfd, "show", "flux-1-dev")
    large, small = 36_000_000_000, 12_000_000_000
    assert found["gpu_memory"] == {"exact": large, "fast": large, "low-memory": small}
    assert found["gpu_count"] == 1
    table = stoker(capfd, "show", "flux-1-dev")[1]
    assert "gpu memory\t36 GB, or 12 GB with the profile low-memory\n" in table
    assert "gpu count" not in table
    assert records(capfd, "show", "flux-tiny")["gpu_memory"] == {}


def test_an_unknown_name_is_answered_with_the_known(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = stoker(capfd, "run", "dall-e")
    assert (code, "there is no pipeline 'dall-e'; registered are flux-1-dev" in err) == (1, True)


def test_weights_that_are_not_here_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = stoker(capfd, "run", "sdxl", "--cpu")
    assert (code, "stoker weights fetch sdxl" in " ".join(err.split())) == (1, True), err


def test_a_run_shows_progress_and_where_the_time_went(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_small_preview(monkeypatch)
    code, out, err = stoker(capfd, "run", "flux-tiny", *SMALL)
    assert code == 0, err
    assert [f"step {step}  steps 3" in err for step in (1, 2, 3)] == [True] * 3
    for stage in ("set-up", "first step", "steps", "finish", "peak memory"):
        assert f"  {stage} " in out, out
    for stage in ("verify", "build", "to device", "warm up", "previews"):
        assert f"    {stage} " in out, out
    assert "the weights are made up" in out
    assert list(Path("out").glob("*.jpeg"))


def test_a_bench_gives_the_median_of_its_runs(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_small_preview(monkeypatch)
    found = records(capfd, "bench", "flux-tiny", "--runs", "2", *SMALL)
    assert (found["pipeline"], found["runs"], found["steps"], found["made_up_weights"]) == (
        "flux-tiny",
        2,
        3,
        True,
    )
    assert list(found["stages_s"]) == ["set-up", "first step", "steps", "finish"]
    assert 0 < sum(found["cold_start_s"].values()) <= found["stages_s"]["set-up"]
    assert 0 < found["least_s"] <= found["job_s"] <= found["most_s"]
    assert found["peak_memory_bytes"] > 50 << 20


def test_a_profile_is_run_and_printed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_small_preview(monkeypatch)
    monkeypatch.setenv("STOKER_PROFILE", "exact")
    found = records(capfd, "run", "flux-tiny", "--profile", "low-memory", *SMALL)
    assert found["profile"] == "low-memory"
    assert found["speed_ups"]["planned-placement"] == "weights in float8"
    code, _, err = stoker(capfd, "run", "flux-tiny", "--profile", "quick", *SMALL)
    assert (code, "there are exact, fast, low-memory" in " ".join(err.split())) == (1, True), err


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--set", "width=1000"), "width: 1000 is not allowed"),
        (("--prompt", " "), 'prompt: " " is not allowed'),
    ],
)
def test_a_wrong_input_is_one_sentence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: tuple[str, str], message: str
) -> None:
    def loads_nothing(*given: object, **named: object) -> None:
        raise AssertionError("the weights are not touched for it")

    monkeypatch.setattr(timing, "_set_up", loads_nothing)
    for command in ("run", "bench"):
        code, _, err = stoker(capfd, command, "flux-tiny", "--cpu", *typed)
        assert (code, message in err, "Traceback" in err) == (1, True, False), err


@pytest.mark.parametrize("name", ["a face.png", "@a face.png"])
def test_local_files_are_inputs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a face.png").write_bytes(b"a picture")
    typed = {"image": name, "audio": "https://example.com/a.wav", "size": "480p"}
    with timing._checked(pipeline("talk-mini"), typed) as found:
        with urllib.request.urlopen(found["image"]) as answer:
            assert answer.read() == b"a picture"
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(found["image"].replace("face", "secret"))
        refused.value.close()
        assert (found["audio"], found["prompt"]) == ("https://example.com/a.wav", timing.PROMPT)
    with (
        pytest.raises(CliError, match=r"image: there is no file no such.png; give a file"),
        timing._checked(pipeline("talk-mini"), typed | {"image": "no such.png"}),
    ):
        raise AssertionError("it is refused")


def one_small_preview(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from stoker.models.text_to_image import previews

    torch.set_num_threads(1)
    monkeypatch.setattr(previews, "_FIT_SIDE", 256)
    monkeypatch.setattr(previews, "_FIT_PROMPTS", ("a red flower",))
