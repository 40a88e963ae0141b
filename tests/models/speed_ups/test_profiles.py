"""Profiles: how one is chosen, what it is made of, and that no exact one has what is seen."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.models.hosted import MODELS
from stoker.models.registry import PIPELINES
from stoker.models.speed_ups import profiles, warm_sizes
from stoker.models.speed_ups.profiles import EXACT, FAST, LOW_MEMORY, PROFILES, SPEED_UPS
from stoker.models.speed_ups.speed_up import Changes, Loaded, NotHere, SpeedUp
from tests.models.speed_ups.pictures import DEFAULTS, most, picture
from tests.models.speed_ups.pictures import flux as flux_of

DEV, SCHNELL = PIPELINES["flux-1-dev"], PIPELINES["flux-1-schnell"]


def test_one_profile_for_all_or_for_each() -> None:
    assert profiles.chosen(DEV, "") == "exact"
    assert profiles.chosen(DEV, " fast ") == "fast"
    assert profiles.chosen(DEV, "flux-1-dev = low-memory, fast") == "low-memory"
    assert profiles.chosen(SCHNELL, "flux-1-dev=low-memory,fast") == "fast"
    assert profiles.chosen(SCHNELL, "flux-1-dev=low-memory") == "exact"


def test_speed_ups_can_be_added_and_keep_their_order() -> None:
    assert profiles.names("exact+taylor-seer+float8-storage") == tuple(
        name for name in SPEED_UPS if name in {*PROFILES[EXACT], "taylor-seer", "float8-storage"}
    )
    order = list(SPEED_UPS)
    assert order.index("fused-projections") < order.index("float8-products") < order.index("block-compile")
    assert order.index("block-compile") < order.index("first-block-cache")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("quick", "names the profile 'quick'; there are exact, fast, low-memory"),
        ("flux-1-dev=", "names the profile ''"),
        ("exact+speed", "names the speed-up 'speed'; there are prompt-cache, "),
    ],
)
def test_unknown_names_are_answered_with_the_known(value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        profiles.parse(value)


def test_what_a_worker_cannot_apply_is_refused_and_left_to_programs_of_several_processes() -> None:
    for value in ("exact+context-parallel", "fast, flux-1-dev=exact + context-parallel"):
        with pytest.raises(ValueError, match="context-parallel, which needs several processes, and a worker"):
            profiles.parse(value)
    assert "context-parallel" in profiles.names("exact+context-parallel")


def test_the_exact_profile_changes_nothing_that_is_seen() -> None:
    assert {SPEED_UPS[name].changes for name in PROFILES[EXACT]} <= {Changes.NOTHING, Changes.ROUNDING}
    for one in SPEED_UPS.values():
        assert one.about.endswith(".")
        assert (one.bound > 0) == (one.changes is Changes.ROUNDING)
    for name in (FAST, LOW_MEMORY):
        assert any(SPEED_UPS[one].changes is Changes.PICTURE for one in PROFILES[name])


def test_both_hosted_models_take_the_setting() -> None:
    for model in MODELS.values():
        assert model.settings[profiles.ENVIRONMENT]("fast") == {"": "fast"}
        assert model.settings[warm_sizes.ENVIRONMENT]("1024x768") == [(1024, 768)]


def test_the_sizes_to_warm_up_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warm_sizes.parse("1024x1024, 768x1344,") == [(1024, 1024), (768, 1344)]
    for value in ("1024", "1000x1024", "0x64", "64x-64", "1024X1024"):
        with pytest.raises(ValueError, match="STOKER_WARM_SIZES has"):
            warm_sizes.parse(value)
    monkeypatch.delenv(warm_sizes.ENVIRONMENT, raising=False)
    assert warm_sizes.chosen([(64, 64)]) == [(64, 64)]
    monkeypatch.setenv(warm_sizes.ENVIRONMENT, "128x64")
    assert warm_sizes.chosen([(64, 64)]) == [(128, 64)]


@pytest.mark.parametrize("profile", list(PROFILES))
def test_each_runs_without_a_gpu(profile: str, tiny_folder: Any) -> None:
    """With the speed-ups that do; what is exact is bit by bit what the plain pipeline draws."""
    pipeline, plain = flux_of(tiny_folder, profile), picture(flux_of(tiny_folder), steps=12)
    pipeline.warm([(256, 256)], DEFAULTS)
    assert (
        set(pipeline.speed_ups)
        == {
            EXACT: {"prompt-cache"},
            FAST: {"prompt-cache", "first-block-cache"},
            LOW_MEMORY: {"planned-placement", "prompt-cache", "vae-tiling"},
        }[profile]
    )
    found = picture(pipeline, steps=12)
    if profile == EXACT:
        assert most(found, plain) == 0
    else:
        assert 0 < abs(found - plain).mean() < 0.5 * plain.std()


def test_what_does_not_run_is_left_out_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(loaded: Loaded) -> str:
        """Never runs."""
        raise NotHere("the moon is full")

    def runs(loaded: Loaded) -> str:
        return "at once"

    one = SpeedUp("one", "One.", Changes.NOTHING, fails)
    two = SpeedUp("two", "Two.", Changes.NOTHING, runs)
    monkeypatch.setattr(profiles, "SPEED_UPS", {"one": one, "two": two})
    with caplog.at_level("INFO"):
        applied = profiles.apply(["one", "two"], Loaded(None, None, "cuda"))
        assert (applied.done, list(applied.left_out)) == ({"two": "at once"}, ["one"])
    assert "speed-up one is left out: the moon is full" in caplog.text
    assert profiles.apply(["one", "two"], Loaded(None, None, "cpu")) == profiles.Applied({}, {})
