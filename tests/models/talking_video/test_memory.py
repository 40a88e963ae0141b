"""What stays on the device is decided beforehand; what cannot fit is refused with the numbers."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from stoker.models.talking_video import memory
from stoker.models.talking_video.memory import GIB, Network, Parts, Placement, Plan, Work, decide, needs
from stoker.models.talking_video.sizes import BUCKETS

INFINITETALK = Parts(
    network=int(35.3 * GIB),
    blocks=34 * GIB,
    block=34 * GIB // 40,
    autoencoder=GIB // 2,
    speech_encoder=GIB // 3,
    text_encoder=int(10.6 * GIB),
    picture_encoder=int(1.2 * GIB),
)
WAN = Network(width=5120, feed_forward=13824, autoencoder_width=96)
WORKS = {size: memory.work_of(WAN, size, 81) for size in ("480p", "720p")}

sizes = st.integers(0, 200 * GIB)


@st.composite
def parts(draw: st.DrawFn) -> Parts:
    block, count, rest = draw(st.integers(1, 2 * GIB)), draw(st.integers(1, 60)), draw(sizes)
    blocks = draw(st.integers(block, block * count))
    return Parts(blocks + rest, blocks, block, *(draw(sizes) for _ in range(4)))


works = st.dictionaries(st.sampled_from(["480p", "720p", "1080p"]), st.builds(Work, sizes, sizes), min_size=1)


def rank(plan: Plan) -> tuple[int, Placement]:
    """The smaller, the better."""
    return len(plan.refused), plan.placement


class TestDecide:
    @given(parts(), works, sizes, sizes)
    def test_more_memory_never_gives_a_worse_plan(
        self, weights: Parts, asked: dict[str, Work], one: int, other: int
    ) -> None:
        less, more = sorted((one, other))
        assert rank(decide(weights, asked, more)) <= rank(decide(weights, asked, less))

    @given(parts(), works, sizes)
    def test_it_never_promises_more_than_there_is(
        self, weights: Parts, asked: dict[str, Work], free: int
    ) -> None:
        plan = decide(weights, asked, free)
        for size, work in asked.items():
            if size not in plan.refused:
                assert needs(weights, work, plan.placement) <= free

    @given(parts(), works, sizes)
    def test_what_is_refused_fits_under_no_plan(
        self, weights: Parts, asked: dict[str, Work], free: int
    ) -> None:
        for size in decide(weights, asked, free).refused:
            assert all(needs(weights, asked[size], one) > free for one in Placement)

    @given(parts(), st.builds(Work, sizes, sizes))
    def test_a_slower_placement_needs_no_more(self, weights: Parts, work: Work) -> None:
        needed = [needs(weights, work, one) for one in Placement]
        assert needed == sorted(needed, reverse=True)

    @given(parts(), st.builds(Work, sizes, sizes), st.sampled_from(Placement))
    def test_what_is_at_work_at_the_same_time_is_counted(
        self, weights: Parts, work: Work, placement: Placement
    ) -> None:
        """An independent sum of each stage, in which nothing is left out."""
        held = weights.autoencoder + weights.speech_encoder
        outside = weights.network - weights.blocks
        network = weights.network if placement < Placement.BY_BLOCKS else outside + weights.block
        encoders = [weights.text_encoder, weights.picture_encoder]
        resting = sum(encoders) if placement is Placement.RESIDENT else 0
        stages = [work.sampling + resting, work.coding + resting, *encoders]
        assert needs(weights, work, placement) >= held + network + max(stages)

    @pytest.mark.parametrize(
        ("gib", "placement", "refused"),
        [
            (80, Placement.RESIDENT, set()),
            (64, Placement.IN_TURN, set()),
            (48, Placement.BY_BLOCKS, set()),
            (24, Placement.BY_BLOCKS, {"720p"}),
            (8, Placement.RESIDENT, {"480p", "720p"}),
        ],
    )
    def test_of_infinitetalk(self, gib: int, placement: Placement, refused: set[str]) -> None:
        plan = decide(INFINITETALK, WORKS, gib * GIB)
        assert (plan.placement, set(plan.refused)) == (placement, refused)

    def test_the_sentence_has_the_numbers(self) -> None:
        plan = decide(INFINITETALK, WORKS, int(23.6 * GIB))
        needed = needs(INFINITETALK, WORKS["720p"], Placement.BY_BLOCKS) / GIB
        assert plan.refused["720p"] == (
            f"a video of 720p needs {needed:.1f} GiB even with the network on the device block by block;"
            " it has 23.6 GiB free"
        )


def test_the_work_grows_with_the_size_and_the_chunk_and_is_that_of_no_length() -> None:
    small, large = WORKS["480p"], WORKS["720p"]
    assert small.sampling < large.sampling
    assert small.coding < large.coding
    assert memory.work_of(WAN, "480p", 17).sampling < small.sampling
    assert memory.work_of(replace(WAN, width=0), "480p", 81).coding == small.coding


@pytest.mark.parametrize("size", ["480p", "720p"])
def test_two_speakers_take_no_more_than_is_planned_for_one(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each token stands between them is read from what it attends to: a map of tokens by tokens."""
    import torch
    from live_bytes import LiveBytes

    bucket = max(BUCKETS[size], key=lambda one: one.height * one.width)
    high, wide = bucket.height // 8, bucket.width // 8
    without_products(monkeypatch)
    with torch.device("meta"), torch.no_grad():
        network, _ = true_parts()
        alone = conditions(high, wide)
        audio, masks = torch.cat([alone.audio] * 2, dim=2), torch.empty(3, high * wide // 4)
        seen = torch.empty(1, 36, 21, high, wide, dtype=torch.bfloat16)
        with LiveBytes(network) as sampling:
            network(seen, torch.empty(1), alone.text, alone.picture, audio, masks)
    assert sampling.most <= WORKS[size].sampling


@pytest.mark.slow
@pytest.mark.parametrize("size", ["480p", "720p"])
def test_the_estimates_are_above_what_the_true_sizes_hold_and_not_far(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted on the meta device: what lives at a time beside the weights, in the largest bucket."""
    import torch
    from live_bytes import LiveBytes

    from stoker.models.talking_video.frames_from_latents import decoded, encoded
    from stoker.models.talking_video.sampling import denoised
    from stoker.models.talking_video.schedule import Guidance

    bucket = max(BUCKETS[size], key=lambda one: one.height * one.width)
    high, wide = bucket.height // 8, bucket.width // 8
    without_products(monkeypatch)
    with torch.device("meta"), torch.no_grad():
        network, autoencoder = true_parts()
        latents = torch.empty(1, 16, 21, high, wide)
        with LiveBytes(network) as sampling:
            given = conditions(high, wide)
            denoised(
                network, given, latents, latents[:, :, :3], [1.0, 0.5, 0.0], Guidance(), lambda done: True
            )
        with LiveBytes(autoencoder) as decoding:
            for _ in decoded(autoencoder, latents[:, :, :4]):
                pass
        with LiveBytes(autoencoder) as encoding:
            encoded(autoencoder, torch.empty(1, 3, 81, bucket.height, bucket.width))
    coding = max(decoding.most, encoding.most)
    for counted, planned in ((sampling.most, WORKS[size].sampling), (coding, WORKS[size].coding)):
        assert counted <= planned <= 1.5 * counted


def without_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device attention would be the one that writes all products down; a GPU's does not."""
    import torch

    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda query, *_, **__: torch.empty_like(query)
    )


def true_parts() -> tuple[Any, Any]:
    """Of the network, two of its forty blocks: one is at work at a time."""
    import diffusers
    import torch

    from stoker.models.talking_video.transformer import TalkingTransformer3DModel
    from stoker.models.talking_video.wan_weights import kept_in_float32

    network = TalkingTransformer3DModel(num_layers=2)
    for name, parameter in network.named_parameters():
        parameter.data = parameter.data.to(torch.float32 if kept_in_float32(name) else torch.bfloat16)
    return network, diffusers.AutoencoderKLWan().eval()


def conditions(high: int, wide: int) -> Any:
    import torch

    from stoker.models.talking_video.sampling import Conditions

    def half(*shape: int) -> Any:
        return torch.empty(shape, dtype=torch.bfloat16)

    text, picture, audio = half(1, 512, 4096), half(1, 257, 1280), half(1, 21, 32, 768)
    return Conditions(text, text, picture, torch.empty(1, 20, 21, high, wide), audio, audio)


class TestLoading:
    """On a CPU nothing moves; where something must, the video stays the same."""

    def test_what_the_parts_weigh_is_read_from_their_files(self, talk_tiny: Path, talker: Any) -> None:
        import torch

        from stoker.models.talking_video.loading import _network, parts_of
        from stoker.models.talking_video.profiles import PROFILES

        found = parts_of(talk_tiny)
        network = _network(talk_tiny, torch.bfloat16, PROFILES["tiny"])
        blocks = [sum(one.nbytes for one in block.parameters()) for block in network.blocks]
        whole = sum(one.nbytes for one in network.parameters())
        assert (found.network, found.blocks, found.block) == (whole, sum(blocks), max(blocks))
        assert found.autoencoder == 4 * sum(one.numel() for one in talker.autoencoder.parameters())
        assert found.text_encoder >= 2 * sum(one.numel() for one in talker.text_encoder.parameters())

    def test_a_plan_for_a_folder(self, talk_tiny: Path) -> None:
        from stoker.models.talking_video.loading import plan_for
        from stoker.models.talking_video.profiles import PROFILES

        assert plan_for(talk_tiny, PROFILES["tiny"], 80 * GIB) == Plan(Placement.RESIDENT)
        assert set(plan_for(talk_tiny, PROFILES["tiny"], GIB).refused) == {"480p", "720p"}

    def test_too_little_memory_for_any_size_is_told_before_anything_is_read(
        self, talk_tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import torch

        from stoker.models.talking_video.loading import DoesNotFit, load

        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (GIB, 80 * GIB))
        with pytest.raises(
            DoesNotFit, match=r"a video of 480p needs .* it has 1\.0 GiB free; a video of 720p"
        ):
            load(talk_tiny, "cuda:0")

    def test_encoders_that_rest_elsewhere_come_only_to_work(self, talker: Any) -> None:
        import torch

        from stoker.models.talking_video.pipeline import see

        moves: list[tuple[str, str]] = []

        @contextlib.contextmanager
        def watched(name: str, encoder: Any) -> Iterator[None]:
            encoder.to = lambda device: moves.append((name, device)) or encoder
            try:
                yield
            finally:
                del encoder.to

        resting = replace(talker, rest="elsewhere")
        with watched("words", talker.text_encoder), watched("pictures", talker.picture_encoder):
            moved = see(resting, "a face", torch.zeros(3, 32, 32))
        still = see(talker, "a face", torch.zeros(3, 32, 32))
        assert moves == [(name, place) for name in ("words", "pictures") for place in ("cpu", "elsewhere")]
        assert moved.text.equal(still.text)
        assert moved.picture.equal(still.picture)

    def test_block_by_block_the_velocity_is_the_same(self, talk_tiny: Path, talker: Any) -> None:
        import torch

        from stoker.models.talking_video import loading

        by_blocks = loading.load(talk_tiny, "cpu", plan=Plan(Placement.BY_BLOCKS))
        torch.manual_seed(1)
        config = talker.network.config
        given = (
            torch.randn(1, config.in_channels, 2, 4, 4),
            torch.tensor([500.0]),
            torch.randn(1, 8, config.text_dim),
            torch.randn(1, 17, config.image_dim),
        )
        windows = torch.randn(1, 5, config.audio_window, config.audio_layers, config.audio_dim)
        with torch.inference_mode():
            one, other = (
                network(*given, network.audio_proj(windows))
                for network in (talker.network, by_blocks.network)
            )
        assert one.equal(other)
        assert by_blocks.rest == "cpu"


def test_a_profile_with_a_lora_changes_the_weights_as_it_is_loaded(talk_tiny: Path, tmp_path: Path) -> None:
    import shutil

    import torch
    from safetensors.torch import save_file

    from stoker.models.talking_video import loading
    from stoker.models.talking_video.profiles import PROFILES

    folder = tmp_path / "with a LoRA"
    shutil.copytree(talk_tiny, folder)
    profile = replace(PROFILES["fast"], lora_scale=0.5)
    assert profile.lora is not None
    up, down = torch.randn(128, 2), torch.randn(2, 128)
    name = "diffusion_model.blocks.0.self_attn.q"
    (folder / profile.lora).parent.mkdir()
    save_file({f"{name}.lora_up.weight": up, f"{name}.lora_down.weight": down}, folder / profile.lora)
    weight = loading.load(folder, "cpu", profile).network.blocks[0].attn1.to_q.weight
    plain = loading.load(folder, "cpu").network.blocks[0].attn1.to_q.weight
    torch.testing.assert_close(weight, plain + 0.5 * up @ down)


def test_a_job_that_does_not_fit_fails_with_the_numbers_before_anything_is_fetched() -> None:
    from stoker.models.talking_video.handler import TalkingVideo
    from stoker.worker.testing import LocalJob

    class Refusing(TalkingVideo):
        def setup(self, device: Any) -> None:
            self.talker: Any = Plan(Placement.BY_BLOCKS, {"720p": "a video of 720p needs 28.1 GiB"})

    given = {"prompt": "a face", "image": "http://x.invalid/a", "audio": "http://x.invalid/b", "size": "720p"}
    job = LocalJob(Refusing, given).run()
    assert "a video of 720p needs 28.1 GiB" in json.dumps(str(job.error))
