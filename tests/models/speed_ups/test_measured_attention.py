"""The attention is the quickest of those that run, measured at the shape that jobs have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stoker.models.speed_ups import attention
from stoker.models.speed_ups.attention import Shape, quickest, race
from stoker.models.speed_ups.speed_up import Loaded, NotHere
from tests.models.speed_ups.pictures import loaded, most, picture

AT = Shape((1, 4608, 24, 128), 4608)
"""FLUX.1 at 1024 x 1024, with 512 tokens of text."""


@pytest.fixture(autouse=True)
def nothing_requested(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """diffusers keeps its choice for the process."""
    from diffusers.models import attention_dispatch

    monkeypatch.delenv(attention.ENVIRONMENT, raising=False)
    yield
    attention_dispatch._AttentionBackendRegistry.set_active_backend(
        attention_dispatch.AttentionBackendName.NATIVE
    )


def scripted(seconds: dict[str, float | str]) -> Any:
    """A measurement that takes so long, or fails with these words."""

    def measure(name: str, shape: Shape) -> float:
        assert shape == AT
        found = seconds.get(name, "it is not installed")
        if isinstance(found, str):
            raise RuntimeError(found)
        return found

    return measure


def test_the_quickest_that_runs_is_used_and_the_others_say_why_not() -> None:
    best, texts = race(
        attention.FULL, AT, scripted({"native": 0.004, "cudnn": 0.002, "flash-3": "no kernel\nfor sm_80"})
    )
    assert best == "cudnn"
    assert texts["cudnn"] == "2.000 ms"
    assert (texts["flash-3"], texts["xformers"]) == ("no kernel", "it is not installed")


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({"native": 1.0, "cudnn": 0.98}, "native"),
        ({"native": 1.0, "cudnn": 0.96}, "cudnn"),
        ({"native": 1.0, "cudnn": 0.9, "flash": 0.8}, "flash"),
        ({"native": 1.0}, "native"),
        ({"xformers": 2.0}, "xformers"),
        ({}, "native"),
    ],
)
def test_within_noise_it_is_torchs_own(seconds: dict[str, float], best: str) -> None:
    assert quickest(seconds) == best


def test_only_the_profile_that_may_change_the_picture_tries_8_bits() -> None:
    seconds: dict[str, float | str] = {"native": 1.0, "sage": 0.1}
    assert race(attention.FULL, AT, scripted(seconds))[0] == "native"
    assert race(tuple(attention.NAMES), AT, scripted(seconds))[0] == "sage"


def test_the_shape_is_that_of_the_networks_largest_attention(flux: Any) -> None:
    """Not of the encoders, and not of the autoencoder, whose tokens are more."""
    sides = []
    for side in (256, 512):
        found = attention.largest(flux.pipe.transformer, lambda side=side: picture(flux, side, side, 1))
        sides.append(found)
    small, large = sides
    heads, width = (
        flux.pipe.transformer.config.num_attention_heads,
        flux.pipe.transformer.config.attention_head_dim,
    )
    assert (small.query[2:], large.query[2:], small.mask) == ((heads, width), (heads, width), None)
    text = 128
    assert large.keys - text == 4 * (small.keys - text)
    assert large.query[1] == large.keys


def test_a_failed_run_leaves_no_hook(flux: Any) -> None:
    def fails() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        attention.largest(flux.pipe.transformer, fails)
    assert not flux.pipe.transformer._forward_pre_hooks
    with pytest.raises(NotHere, match="does not call torch's attention"):
        attention.largest(flux.pipe.transformer, lambda: None)


def test_it_is_measured_here_and_the_picture_is_the_same(
    flux: Any, plain: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """On a CPU torch's own, its mathematics written down, and what cannot run."""
    examples = {"256x256": lambda: picture(flux, steps=1)}
    with caplog.at_level("INFO"):
        used = attention.measured_attention(loaded(flux, examples=examples))
    assert used in attention.FULL
    assert "flash" in caplog.text
    assert most(picture(flux), plain) <= 2


def test_a_wrong_output_is_not_timed(flux: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    attended = attention._attended

    def wrong(network: Any, device: str, name: str, shape: Shape) -> Any:
        found = attended(network, device, "native", shape)
        return found if name == "native" else found + 1.0

    monkeypatch.setattr(attention, "_attended", wrong)
    monkeypatch.setattr(attention, "use", lambda network, name: None)
    shape = Shape((1, 16, 2, 8), 16)
    assert attention._seconds(loaded(flux), "native", shape) > 0
    with pytest.raises(ValueError, match=r"its output differs from torch's own by 1\b"):
        attention._seconds(loaded(flux), "cudnn", shape)


def test_a_requested_one_is_not_measured(flux: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(attention.ENVIRONMENT, "native")
    assert attention.measured_attention(loaded(flux)) == "native, as STOKER_ATTENTION says"


def test_without_an_example_it_is_left_as_it_is(flux: Any) -> None:
    with pytest.raises(NotHere):
        attention.measured_attention(loaded(flux))


def test_a_network_that_does_not_ask_diffusers_takes_xformers_only() -> None:
    """As that of Stable Diffusion XL."""
    import torch

    class Network(torch.nn.Module):
        used = ""

        def enable_xformers_memory_efficient_attention(self) -> None:
            self.used = "xformers"

    network = Network()
    attention.use(network, "native")
    with pytest.raises(ValueError, match="does not let Network use it"):
        attention.use(network, "cudnn")
    attention.use(network, "xformers")
    assert network.used == "xformers"
    assert Loaded(network, None, "cpu").on_gpu is False
