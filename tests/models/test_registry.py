"""What the control plane reads about models: plain data, without any model library."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.hosted import MODELS
from stoker.models.registry import (
    GROUP,
    PIPELINES,
    NoWeights,
    UnknownPipeline,
    choose_pipeline,
    known_pipelines,
    pipeline,
)
from stoker.models.speed_ups import profiles
from stoker.models.talking_video.sampling.settings import SETTINGS
from stoker.models.weights import read_lock

_LIGHT = """
import sys
import stoker.models.registry, stoker.models.declaration, stoker.models.weights, stoker.models.selection
from stoker.models.text_to_image import declaration, request, tiny
from stoker.models.talking_video import declaration, memory, request
from stoker.models.talking_video.sampling import chunks, schedule, settings
from stoker.models.talking_video.tiny import tiny
from stoker.models.talking_video.video import sizes
heavy = {"torch", "diffusers", "transformers", "accelerate", "huggingface_hub"} & set(sys.modules)
assert not heavy, heavy
"""


def lacking(here: set[str]) -> Callable[[str], str]:
    return lambda name: "" if name in here else f"{name} is not fetched"


def test_declarations_and_weights_import_no_model_library() -> None:
    subprocess.run([sys.executable, "-P", "-c", _LIGHT], check=True, timeout=60)


def test_the_image_model_is_hosted() -> None:
    model = MODELS["text-to-image"]
    assert model.handler == "stoker.models.text_to_image.handler:TextToImage"
    assert json.loads(json.dumps([dict(model.schema), list(model.prices)]))[1] == [
        {"metric": "output_pixels", "nano_usd": 20}
    ]


def test_the_handler_reference_leads_to_a_handler() -> None:
    from stoker.models.text_to_image.handler import TextToImage
    from stoker.worker.setup.registration import register

    register(TextToImage)
    module, _, name = MODELS["text-to-image"].handler.partition(":")
    assert (TextToImage.__module__, TextToImage.__name__) == (module, name)


@pytest.mark.parametrize(
    ("requested", "kind", "here", "chosen"),
    [
        (None, "cpu", set(), "flux-mini"),
        (None, "cpu", {"flux-1-schnell"}, "flux-1-schnell"),
        (None, "gpu", {"flux-1-dev"}, "flux-1-dev"),
        (None, "gpu", {"flux-1-schnell"}, "flux-1-schnell"),
        (None, "gpu", {"flux-1-schnell", "flux-1-dev"}, "flux-1-dev"),
        ("infinitetalk", "gpu", {"flux-1-schnell"}, "flux-1-schnell"),
        (None, "mig", {"flux-1-dev"}, "flux-1-dev"),
        ("", "gpu", {"flux-1-dev"}, "flux-1-dev"),
        ("flux-1-schnell", "gpu", set(), "flux-1-schnell"),
        ("flux-tiny", "gpu", {"flux-1-dev"}, "flux-tiny"),
        ("flux-1-schnell, talk-tiny", "gpu", {"infinitetalk"}, "talk-tiny"),
    ],
)
def test_which_pipeline_is_chosen(requested: str | None, kind: str, here: set[str], chosen: str) -> None:
    model = MODELS[pipeline(chosen).model]
    assert choose_pipeline(model, requested, kind, lacking(here)).name == chosen


@pytest.mark.parametrize(
    ("requested", "kind", "here", "chosen"),
    [
        (None, "cpu", set(), "talk-mini"),
        ("talk-tiny", "cpu", set(), "talk-tiny"),
        (None, "cpu", {"infinitetalk"}, "infinitetalk"),
        (None, "gpu", {"infinitetalk-fast"}, "infinitetalk-fast"),
        ("talk-tiny", "gpu", set(), "talk-tiny"),
        (None, "gpu", {"infinitetalk"}, "infinitetalk"),
        (None, "mig", {"infinitetalk", "infinitetalk-fast"}, "infinitetalk"),
        ("infinitetalk-fast", "gpu", {"infinitetalk-fast"}, "infinitetalk-fast"),
        ("flux-1-dev", "gpu", {"infinitetalk"}, "infinitetalk"),
    ],
)
def test_which_video_pipeline_is_chosen(
    requested: str | None, kind: str, here: set[str], chosen: str
) -> None:
    assert choose_pipeline(MODELS["talking-video"], requested, kind, lacking(here)).name == chosen


@pytest.mark.parametrize("kind", ["gpu", "mig"])
@pytest.mark.parametrize("model", MODELS)
def test_a_gpu_without_weights_gets_no_small_pipeline(model: str, kind: str) -> None:
    real = [name for name in MODELS[model].pipelines if not PIPELINES[name].small]
    small = MODELS[model].pipelines[len(real)]
    with pytest.raises(NoWeights) as caught:
        choose_pipeline(MODELS[model], None, kind, lacking(set()))
    message = str(caught.value)
    assert all(f"{name}: {name} is not fetched" in message for name in real)
    assert f"only where STOKER_PIPELINE={small} asks for it" in message


@given(
    model=st.sampled_from(sorted(MODELS)),
    kind=st.sampled_from(["cpu", "gpu", "mig"]),
    here=st.sets(st.sampled_from(sorted(PIPELINES))),
)
def test_fetched_weights_are_better_than_small_ones(model: str, kind: str, here: set[str]) -> None:
    real = [name for name in MODELS[model].pipelines if not PIPELINES[name].small]
    try:
        chosen = choose_pipeline(MODELS[model], None, kind, lacking(here))
    except NoWeights:
        assert kind != "cpu"
        assert not here & set(real)
        return
    assert chosen.model == model
    assert chosen.small == (not here & set(real))
    assert not chosen.small or kind == "cpu"


def test_what_is_small_is_what_stoker_has_itself() -> None:
    lock = read_lock()
    for name, entry in PIPELINES.items():
        assert entry.small == lock.entry(entry.weights).is_built
        assert entry.made_up == name.endswith("-tiny")
        assert ("whose weights are made up" in entry.description) == entry.made_up
        assert entry.output_fields.get("made_up_weights", False) == entry.made_up
        assert entry.description.startswith(name)


def test_each_pipeline_stands_behind_its_model_and_the_last_is_made_up() -> None:
    for model in MODELS.values():
        assert set(model.pipelines) == {entry.name for entry in PIPELINES.values() if entry.model == model.id}
        assert [PIPELINES[name].made_up for name in model.pipelines[-2:]] == [False, True]


def test_the_pipelines_of_the_video_model_name_their_sampling() -> None:
    videos = (entry for entry in PIPELINES.values() if entry.model == "talking-video")
    sampling = {entry.name: entry.options.get("sampling") for entry in videos}
    assert sampling == {
        "infinitetalk": None,
        "infinitetalk-fast": "distilled",
        "talk-mini": None,
        "talk-tiny": "tiny",
    }
    assert set(filter(None, sampling.values())) <= set(SETTINGS)


def test_the_video_model_is_hosted() -> None:
    model = MODELS["talking-video"]
    assert model.schema["required"] == ["prompt", "image", "audio", "size"]
    assert [price["nano_usd"] for price in model.prices] == [250_000_000, 500_000_000]


def test_a_worker_can_apply_the_profile_of_every_pipeline() -> None:
    for entry in PIPELINES.values():
        profiles.check(entry.profile, entry.name)


def test_an_unknown_pipeline_is_answered_with_the_known() -> None:
    with pytest.raises(
        UnknownPipeline, match="no pipeline 'dall-e'; registered are flux-1-dev, flux-1-schnell"
    ):
        choose_pipeline(MODELS["text-to-image"], "dall-e", "cpu", lacking(set()))


def install(site: Path, source: str, points: str) -> None:
    """A package of somebody's with entry points, as pip leaves it."""
    info = site / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "theirs.py").write_text(source)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")


THEIRS = """
from stoker.models.interface import PipelineEntry
ENTRY = PipelineEntry("theirs", model="text-to-image", weights="theirs")
OTHER = PipelineEntry("other", model="text-to-music", weights="theirs")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    return tmp_path


def test_a_package_adds_a_pipeline_that_runs_where_it_is_requested(site: Path) -> None:
    install(site, THEIRS, "theirs = theirs:ENTRY")
    found = choose_pipeline(MODELS["text-to-image"], "theirs", "gpu", lacking({"flux-1-dev"}))
    assert (found.name, found.model) == ("theirs", "text-to-image")
    assert choose_pipeline(MODELS["text-to-image"], None, "cpu", lacking({"theirs"})).name == "flux-mini"
    assert found in known_pipelines()
    with pytest.raises(UnknownPipeline, match=r"registered are .*theirs"):
        pipeline("ours")


@pytest.mark.parametrize(
    ("source", "point", "message"),
    [
        ("import no_such_module", "theirs:ENTRY", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("raise OSError('no disk')", "theirs:ENTRY", "cannot be loaded: OSError: no disk"),
        ("ENTRY = 5", "theirs:ENTRY", "must be a PipelineEntry named 'theirs'; it is 5"),
        (THEIRS, "theirs:OTHER", "must be a PipelineEntry named 'theirs'"),
        (
            THEIRS.replace('"other"', '"theirs"'),
            "theirs:OTHER",
            "is for 'text-to-music', which is not a hosted model",
        ),
        (
            THEIRS.replace('weights="theirs")', 'weights="theirs", profile="exact+context-parallel")', 1),
            "theirs:ENTRY",
            "names context-parallel, which needs several processes, and a worker is one",
        ),
        (
            THEIRS.replace('weights="theirs")', 'weights="theirs", profile="quick")', 1),
            "theirs:ENTRY",
            "names the profile 'quick'; there are exact, fast, low-memory",
        ),
    ],
)
def test_a_package_that_cannot_be_used_is_named(site: Path, source: str, point: str, message: str) -> None:
    install(site, source, f"theirs = {point}")
    with pytest.raises(UnknownPipeline) as caught:
        pipeline("theirs")
    assert str(caught.value).startswith(f"the pipeline theirs of theirs ({point}) ")
    assert message in str(caught.value)
    assert [entry.name for entry in known_pipelines()] == list(PIPELINES)
