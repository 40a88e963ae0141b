"""What stays on the device is decided beforehand; what cannot fit is refused with the numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.memory_gauge import MemoryGauge
from stoker.models.talking_video import memory
from stoker.models.talking_video.memory import GIB, MemoryPlan, MemoryUse, Network, Parts, Work, decide, needs
from stoker.models.talking_video.video.sizes import BUCKETS

INFINITETALK = Parts(
    network=int(35.3 * GIB),
    blocks=34 * GIB,
    block=34 * GIB // 40,
    autoencoder=GIB // 2,
    speech_encoder=GIB // 3,
    text_encoder=int(10.6 * GIB),
    image_encoder=int(1.2 * GIB),
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


def rank(plan: MemoryPlan) -> tuple[int, MemoryUse]:
    """The smaller, the better."""
    return len(plan.refused), plan.placement


class TestDecide:
    @given(parts(), works, sizes, sizes)
    def test_more_memory_never_gives_a_worse_plan(
        self, weights: Parts, required_work: dict[str, Work], one: int, other: int
    ) -> None:
        less, more = sorted((one, other))
        assert rank(decide(weights, required_work, more)) <= rank(decide(weights, required_work, less))

    @given(parts(), works, sizes)
    def test_it_never_promises_more_than_there_is(
        self, weights: Parts, required_work: dict[str, Work], free: int
    ) -> None:
        plan = decide(weights, required_work, free)
        for size, work in required_work.items():
            if size not in plan.refused:
                assert needs(weights, work, plan.placement) <= free

    @given(parts(), works, sizes)
    def test_what_is_refused_fits_under_no_plan(
        self, weights: Parts, required_work: dict[str, Work], free: int
    ) -> None:
        for size in decide(weights, required_work, free).refused:
            assert all(needs(weights, required_work[size], one) > free for one in MemoryUse)

    @given(parts(), st.builds(Work, sizes, sizes))
    def test_a_slower_placement_needs_no_more(self, weights: Parts, work: Work) -> None:
        needed = [needs(weights, work, one) for one in MemoryUse]
        assert needed == sorted(needed, reverse=True)

    @given(parts(), st.builds(Work, sizes, sizes), st.sampled_from(MemoryUse))
    def test_what_is_at_work_at_the_same_time_is_counted(
        self, weights: Parts, work: Work, placement: MemoryUse
    ) -> None:
        """An independent sum of each stage, in which nothing is left out."""
        held = weights.autoencoder + weights.speech_encoder
        outside = weights.network - weights.blocks
        network = weights.network if placement < MemoryUse.BY_BLOCKS else outside + weights.block
        encoders = [weights.text_encoder, weights.image_encoder]
        resting = sum(encoders) if placement is MemoryUse.RESIDENT else 0
        stages = [one + resting for one in (work.sampling, work.coding, memory.ENCODING_SPEECH)] + encoders
        assert needs(weights, work, placement) >= held + network + max(stages)

    @pytest.mark.parametrize(
        ("gib", "placement", "refused"),
        [
            (80, MemoryUse.RESIDENT, set()),
            (64, MemoryUse.IN_TURN, set()),
            (48, MemoryUse.BY_BLOCKS, set()),
            (24, MemoryUse.BY_BLOCKS, {"720p"}),
            (8, MemoryUse.RESIDENT, {"480p", "720p"}),
        ],
    )
    def test_of_infinitetalk(self, gib: int, placement: MemoryUse, refused: set[str]) -> None:
        plan = decide(INFINITETALK, WORKS, gib * GIB)
        assert (plan.placement, set(plan.refused)) == (placement, refused)

    def test_the_message_has_the_numbers(self) -> None:
        plan = decide(INFINITETALK, WORKS, int(23.6 * GIB))
        needed = needs(INFINITETALK, WORKS["720p"], MemoryUse.BY_BLOCKS) / GIB
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

    from tests.models.talking_video.live_bytes import LiveBytes

    bucket = max(BUCKETS[size], key=lambda one: one.height * one.width)
    high, wide = bucket.height // 8, bucket.width // 8
    without_products(monkeypatch)
    with torch.device("meta"), torch.no_grad():
        network, _ = true_parts()
        alone = conditions(high, wide)
        audio, masks = torch.cat([alone.audio] * 2, dim=2), torch.empty(3, high * wide // 4)
        network_input = torch.empty(1, 36, 21, high, wide, dtype=torch.bfloat16)
        with LiveBytes(network) as sampling:
            network(network_input, torch.empty(1), alone.text, alone.image, audio, masks)
    assert sampling.most <= WORKS[size].sampling


@pytest.mark.slow
@pytest.mark.parametrize("size", ["480p", "720p"])
def test_the_estimates_are_above_what_the_true_sizes_hold_and_not_far(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted on the meta device: what lives at a time beside the weights, in the largest bucket."""
    import torch

    from stoker.models.talking_video.network.frames_from_latents import decoded, encoded
    from stoker.models.talking_video.sampling.sampling import denoised
    from stoker.models.talking_video.sampling.schedule import Guidance
    from tests.models.talking_video.live_bytes import LiveBytes

    bucket = max(BUCKETS[size], key=lambda one: one.height * one.width)
    high, wide = bucket.height // 8, bucket.width // 8
    without_products(monkeypatch)
    with torch.device("meta"), torch.no_grad():
        network, autoencoder = true_parts()
        latents = torch.empty(1, 16, 21, high, wide)
        with LiveBytes(network) as sampling:
            arguments = conditions(high, wide)
            denoised(
                network, arguments, latents, latents[:, :, :3], [1.0, 0.5, 0.0], Guidance(), lambda done: True
            )
        with LiveBytes(autoencoder) as decoding:
            for _ in decoded(autoencoder, latents[:, :, :4]):
                pass
        with LiveBytes(autoencoder) as encoding:
            encoded(autoencoder, torch.empty(1, 3, 81, bucket.height, bucket.width))
    coding = max(decoding.most, encoding.most)
    for counted, planned in ((sampling.most, WORKS[size].sampling), (coding, WORKS[size].coding)):
        assert counted <= planned <= 1.5 * counted


def test_what_is_planned_for_hearing_is_above_what_two_minutes_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the true encoder; what its first convolution makes of all of it would be gigabytes."""
    import torch
    import transformers

    from stoker.models.talking_video.audio.speech import PER_FRAME, layers_of
    from stoker.models.talking_video.audio.stretches import DEFAULT
    from stoker.models.talking_video.sampling.chunks import FPS
    from tests.models.talking_video.live_bytes import LiveBytes

    frames = round(DEFAULT.whole_s * FPS)
    without_products(monkeypatch)
    with torch.device("meta"), torch.no_grad():
        encoder = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config()).eval()
        with LiveBytes(encoder) as hearing:
            assert layers_of(encoder, torch.empty(1, frames * PER_FRAME), frames).shape == (3000, 12, 768)
    assert hearing.most <= memory.ENCODING_SPEECH <= 2 * hearing.most


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

    from stoker.models.talking_video.network.transformer import TalkingTransformer3DModel
    from stoker.models.talking_video.network.weights import kept_in_float32

    network = TalkingTransformer3DModel(num_layers=2)
    for name, parameter in network.named_parameters():
        parameter.data = parameter.data.to(torch.float32 if kept_in_float32(name) else torch.bfloat16)
    return network, diffusers.AutoencoderKLWan().eval()


def conditions(high: int, wide: int) -> Any:
    import torch

    from stoker.models.talking_video.sampling.sampling import Conditions

    def half(*shape: int) -> Any:
        return torch.empty(shape, dtype=torch.bfloat16)

    text, image, audio = half(1, 512, 4096), half(1, 257, 1280), half(1, 21, 32, 768)
    return Conditions(text, text, image, torch.empty(1, 20, 21, high, wide), audio, audio)


class TestLoading:
    """On a CPU nothing moves; where something must, the video stays the same."""

    def test_what_the_parts_weigh_is_read_from_their_files(
        self, talk_tiny: Path, video_pipeline: Any
    ) -> None:
        import torch

        from stoker.models.talking_video.loading import _network, parts_of
        from stoker.models.talking_video.sampling.settings import SETTINGS

        found = parts_of(talk_tiny)
        network = _network(talk_tiny, torch.bfloat16, SETTINGS["tiny"])
        blocks = [sum(one.nbytes for one in block.parameters()) for block in network.blocks]
        whole = sum(one.nbytes for one in network.parameters())
        assert (found.network, found.blocks, found.block) == (whole, sum(blocks), max(blocks))
        assert found.autoencoder == 4 * sum(one.numel() for one in video_pipeline.autoencoder.parameters())
        assert found.text_encoder >= 2 * sum(one.numel() for one in video_pipeline.text_encoder.parameters())

    def test_a_plan_for_a_folder(self, talk_tiny: Path) -> None:
        from stoker.models.talking_video.loading import plan_for
        from stoker.models.talking_video.sampling.settings import SETTINGS

        assert plan_for(talk_tiny, SETTINGS["tiny"], 80 * GIB) == MemoryPlan(MemoryUse.RESIDENT)
        assert set(plan_for(talk_tiny, SETTINGS["tiny"], GIB).refused) == {"480p", "720p"}

    def test_too_little_memory_for_any_size_is_reported_before_anything_is_read(
        self, talk_tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import torch

        from stoker.models.talking_video.loading import DoesNotFit, load

        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (GIB, 80 * GIB))
        with pytest.raises(
            DoesNotFit, match=r"a video of 480p needs .* it has 1\.0 GiB free; a video of 720p"
        ):
            load(talk_tiny, "cuda:0")

    def test_encoders_that_rest_elsewhere_come_only_to_work(
        self, talk_tiny: Path, video_pipeline: Any
    ) -> None:
        """By accelerate's hooks: here they go from the CPU to the CPU, by another name."""
        import torch

        from stoker.models.talking_video import loading
        from stoker.models.talking_video.pipeline import encode_scene

        moving = loading.load(talk_tiny, "cpu", plan=MemoryPlan(MemoryUse.IN_TURN))
        encoders = {"words": moving.text_encoder, "images": moving.image_encoder}
        assert [offloaded.model for offloaded in moving.offloaded] == list(encoders.values())
        moves: list[tuple[str, str]] = []
        for (name, encoder), offloaded in zip(encoders.items(), moving.offloaded, strict=True):
            offloaded.hook.execution_device = "cpu:0"
            encoder.to = lambda device, name=name, encoder=encoder: moves.append((name, device)) or encoder
        moved = encode_scene(moving, "a face", torch.zeros(3, 32, 32))
        still = encode_scene(video_pipeline, "a face", torch.zeros(3, 32, 32))
        gone = [("words", "cpu"), ("images", "cpu")]
        assert moves == [("words", "cpu:0"), *gone, ("images", "cpu:0"), *gone]
        assert moved.text.equal(still.text)
        assert moved.image.equal(still.image)

    def test_what_fits_does_not_move(self, video_pipeline: Any) -> None:
        assert not video_pipeline.offloaded
        assert not hasattr(video_pipeline.text_encoder, "_hf_hook")

    def test_a_network_is_built_without_weights_and_with_its_tables(
        self, talk_tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a base and an adapter: before its files are read, no parameter takes memory."""
        import shutil

        import torch

        from stoker.models.talking_video import loading
        from stoker.models.talking_video.network import weights as wan_weights

        folder = tmp_path / "base"
        shutil.copytree(talk_tiny, folder)
        config = json.loads((folder / "transformer" / "config.json").read_text())
        config["_class_name"] = "WanTransformer3DModel"
        (folder / "transformer" / "config.json").write_text(json.dumps(config))
        built: list[Any] = []
        read = wan_weights.load_into

        def watched(network: Any, *arguments: Any) -> None:
            built.append({parameter.device.type for parameter in network.parameters()})
            read(network, *arguments)

        monkeypatch.setattr(wan_weights, "load_into", watched)
        ours = loading.load(folder, "cpu").network
        whole = loading.load(talk_tiny, "cpu").network
        assert built == [{"meta"}]
        assert ours.rope.freqs_cos.equal(whole.rope.freqs_cos)
        assert all(torch.equal(ours.state_dict()[name], value) for name, value in whole.state_dict().items())
        assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}

    def test_block_by_block_the_velocity_is_the_same(self, talk_tiny: Path, video_pipeline: Any) -> None:
        import torch

        from stoker.models.talking_video import loading

        by_blocks = loading.load(talk_tiny, "cpu", plan=MemoryPlan(MemoryUse.BY_BLOCKS))
        torch.manual_seed(1)
        config = video_pipeline.network.config
        arguments = (
            torch.randn(1, config.in_channels, 2, 4, 4),
            torch.tensor([500.0]),
            torch.randn(1, 8, config.text_dim),
            torch.randn(1, 17, config.image_dim),
        )
        windows = torch.randn(1, 5, config.audio_window, config.audio_layers, config.audio_dim)
        with torch.inference_mode():
            one, other = (
                network(*arguments, network.audio_proj(windows))
                for network in (video_pipeline.network, by_blocks.network)
            )
        assert one.equal(other)
        assert len(by_blocks.offloaded) == 2


def test_settings_with_a_lora_changes_the_weights_as_it_is_loaded(talk_tiny: Path, tmp_path: Path) -> None:
    import shutil

    import torch
    from safetensors.torch import save_file

    from stoker.models.talking_video import loading
    from stoker.models.talking_video.sampling.settings import SETTINGS

    folder = tmp_path / "with a LoRA"
    shutil.copytree(talk_tiny, folder)
    settings = replace(SETTINGS["distilled"], lora_scale=0.5)
    assert settings.lora is not None
    up, down = torch.randn(128, 2), torch.randn(2, 128)
    name = "diffusion_model.blocks.0.self_attn.q"
    (folder / settings.lora).parent.mkdir()
    save_file({f"{name}.lora_up.weight": up, f"{name}.lora_down.weight": down}, folder / settings.lora)
    weight = loading.load(folder, "cpu", settings).network.blocks[0].attn1.to_q.weight
    plain = loading.load(folder, "cpu").network.blocks[0].attn1.to_q.weight
    torch.testing.assert_close(weight, plain + 0.5 * up @ down)


def test_a_job_that_does_not_fit_fails_with_the_numbers_before_anything_is_fetched() -> None:
    from stoker.models.talking_video.handler import TalkingVideo
    from stoker.worker.testing import LocalJob

    class Refusing(TalkingVideo):
        def setup(self, device: Any) -> None:
            self.pipeline: Any = MemoryPlan(MemoryUse.BY_BLOCKS, {"720p": "a video of 720p needs 28.1 GiB"})
            self.memory = MemoryGauge("cpu")

    arguments = {
        "prompt": "a face",
        "image": "http://x.invalid/a",
        "audio": "http://x.invalid/b",
        "size": "720p",
    }
    job = LocalJob(Refusing, arguments).run()
    assert "a video of 720p needs 28.1 GiB" in json.dumps(str(job.error))
