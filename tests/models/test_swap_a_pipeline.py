"""docs/swap-a-pipeline.md, word by word: its files are written, its commands run, its pipelines used.

The fine-tuned weights of the page are small made-up ones. `stoker up` is not started here: what it would
serve is read from the page's configuration, and the handler runs as a worker runs it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.control.endpoints import declared_endpoints
from stoker.cli.control.hosted import needed_weights
from stoker.cli.main import main
from stoker.cli.up.weights import prepare
from stoker.control.config.config import load_config
from stoker.control.errors import BadRequest
from stoker.control.rules.inputs.checking import check_input
from stoker.control.rules.inputs.defaults import accepted
from stoker.models.registry import pipeline
from stoker.models.text_to_image import previews
from stoker.models.text_to_image.handler import TextToImage
from stoker.worker import Device
from stoker.worker.setup.registration import load
from stoker.worker.testing import LocalJob
from tests.documentation.command_lines import ROOT, lines
from tests.documentation.pages import Block, Page
from tests.models.text_to_image import tiny_families

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

PAGE = Page.read(ROOT / "docs" / "swap-a-pipeline.md")
SMALL = {"prompt": "a lighthouse", "width": 256, "height": 256, "seed": 1}


def titled(name: str) -> Block:
    (found,) = [block for block in PAGE.blocks() if block.title == name]
    return found


def commands(program: str) -> list[tuple[dict[str, str], list[str]]]:
    """The page's command lines of `stoker PROGRAM`: the variables before them, and the arguments."""
    found = []
    for block in PAGE.blocks("sh"):
        for _, line in lines(block):
            words = shlex.split(line)
            variables = (
                dict(word.split("=", 1) for word in words[: words.index("stoker")])
                if "stoker" in words
                else {}
            )
            rest = words[len(variables) :]
            if rest[:2] == ["stoker", program]:
                found.append((variables, rest[1:]))
    return found


def stoker(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in (0, None), arguments


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The reader's folder, with the files of the page, after its commands for weights."""
    import torch
    from diffusers import UNet2DConditionModel

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("reader")
    for name in (
        "pipelines/ours.py",
        "pipelines/ink.py",
        "stoker.toml",
        "pyproject.toml",
        "our_pipelines/__init__.py",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(titled(name).text)
    tiny_families.build("sdxl", folder / "weights" / "our-sdxl")
    unet = UNet2DConditionModel.from_pretrained(folder / "weights" / "our-sdxl" / "unet")
    tiny_families.build_lora(unet, "unet", "our-ink", 2, folder / "weights" / "our-ink")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("STOKER_")]:
            patch.delenv(name)
        patch.setattr(previews, "_FIT_SIDE", 256)
        patch.setattr(previews, "_FIT_PROMPTS", ("a red flower",))
        for _, arguments in commands("weights"):
            if "--from" in arguments or arguments[1] != "lock":  # the hub cannot be asked
                stoker(arguments)
        yield folder


def test_the_weights_are_locked_verified_and_fetched(folder: Path) -> None:
    entry = tomllib.loads((folder / "our.lock").read_text())["models"]["our-sdxl"]
    assert (entry["source"], entry["licence"]) == ("folder", "CreativeML Open RAIL++-M")
    assert (folder / "data" / "weights" / "our-sdxl" / "model_index.json").is_file()


def test_the_file_is_served_priced_and_its_inputs_are_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (endpoint,) = declared_endpoints(load_config(folder / "stoker.toml"), (), {})
    assert {price.metric: price.nano_usd for price in endpoint.run.prices} == {"output_pixels": 30}
    assert endpoint.run.schema is not None
    filled = accepted(endpoint.run.schema, {"prompt": "a lighthouse"})
    assert (filled["width"], filled["height"], filled["num_inference_steps"]) == (512, 512, 8)
    assert (filled["image_format"], filled["guidance"]) == ("png", 2.0)
    for wrong, message in (
        ({"width": 1024}, "width must be at most 512"),
        ({"num_images": 10}, "num_images must be at most 4"),
        ({"sede": 1}, "sede is not a known field"),
        ({"prompt": " "}, "prompt must have at least one character that is not white space"),
    ):
        with pytest.raises(BadRequest, match=message):
            check_input(endpoint.run.schema, SMALL | wrong)
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", "weights")
    whole = accepted(endpoint.run.schema, SMALL)
    job = LocalJob(load(endpoint.run.handler).target, whole, device=Device()).run()
    assert job.error is None, job.error
    assert job.output["pipeline"] == "our-sdxl"
    assert job.metrics == {"output_pixels": 256 * 256}
    assert job.progress[-1] == {"step": 8, "steps": 8}
    assert job.chunks


@pytest.mark.parametrize("which", [0, 1])
def test_predict_makes_an_image(folder: Path, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second asks for a LoRA."""
    variables, arguments = commands("predict")[which]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (folder / "out" / "image.jpeg").unlink(missing_ok=True)
    stoker(arguments)
    assert (folder / "out" / "image.jpeg").is_file()


@pytest.mark.slow
@pytest.mark.numbers
def test_the_package_adds_a_pipeline_with_an_input_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder, monkeypatch)
    variables, arguments = commands("up")[-1]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (endpoint,) = declared_endpoints(load_config(None), [arguments[-1]], variables)
    assert endpoint.run.schema is not None
    check_input(endpoint.run.schema, SMALL | {"paper": "on grey paper"})
    needed = needed_weights(arguments[-1:], variables)
    assert needed == {"our-sdxl": folder / "site" / "our_pipelines" / "our.lock"}
    prepare(needed, folder / "weights")
    ((_, arguments),) = commands("model")
    stoker(arguments)
    monkeypatch.setenv("STOKER_PIPELINE", endpoint.run.env["STOKER_PIPELINE"])
    handler = TextToImage()
    handler.setup(Device())
    assert handler.serves == "our-sketches (pencil drawings)"
    plain, grey = (LocalJob(handler.run, SMALL | {"paper": paper}).run() for paper in ("", "on grey paper"))
    assert (plain.error, grey.error) == (None, None)
    assert plain.output["image_url"].read_bytes() != grey.output["image_url"].read_bytes()
    assert "paper: 5 is not allowed" in str(LocalJob(handler.run, SMALL | {"paper": 5}).run().error)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page does it, but to a folder of its own, and with nothing from a registry."""
    assert [
        line for block in PAGE.blocks("sh") for _, line in lines(block) if line.startswith(("cp", "pip"))
    ] == [
        "cp our.lock our_pipelines/",
        "pip install .",
    ]
    shutil.copy(folder / "our.lock", folder / "our_pipelines")
    site = folder / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(site), "."], check=True, cwd=folder)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "our_pipelines", raising=False)


def test_the_family_of_the_page_is_one(folder: Path) -> None:
    made: dict[str, Any] = {}
    exec(titled("pipelines/chroma.py").text, made)
    import diffusers

    assert hasattr(diffusers, made["Chroma"].library_class)
    assert hasattr(getattr(diffusers, made["Chroma"].library_class), "_unpack_latents")
    assert pipeline("sdxl").load is not None
