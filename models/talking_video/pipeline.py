"""The generation of frames from an image, a prompt and audio: free functions, chunk by chunk.

    load ──> VideoPipeline
    encode_scene(pipeline, prompt, image) ──> Scene: the conditions that all chunks share, computed once
    generate(pipeline, scene, speech, …) ──> frames of chunk 0, of chunk 1, …  one at a time is in memory

        chunk:  noise ─> denoised ─> decoded latent by latent ─> colours of the image ─> frames
                  ^ the last frames of the chunk before, encoded

Nothing heavy is imported until it is needed. Frames are yielded as soon as their latent is decoded.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stoker.models import finite
from stoker.models.speed_ups import step_caches
from stoker.models.talking_video.sampling.chunks import Chunk, latents_of, plan
from stoker.models.talking_video.sampling.prompt import cleaned
from stoker.models.talking_video.sampling.schedule import levels
from stoker.models.talking_video.sampling.settings import UNWANTED, SamplingSettings

if TYPE_CHECKING:
    import torch

    from stoker.models.talking_video.audio.speech import Speech, TwoSpeakers
    from stoker.models.talking_video.sampling.sampling import Conditions
    from stoker.models.talking_video.video.colour import Colours


TEXT_TOKENS, IMAGE_TOKENS = 512, 257
PIXELS_PER_TOKEN = 16
"""Eight pixels for each latent of the autoencoder, and two latents for each patch."""

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_DEVIATION = (0.26862954, 0.26130258, 0.27577711)
"""The mean and deviation of the images that CLIP was trained on (openai/CLIP)."""


@dataclass(frozen=True, slots=True)
class VideoPipeline:
    """The loaded parts, classes of diffusers and transformers. `offloaded`: accelerate's hooks of the
    encoders that are on the device only while they run. `refused`: a message for each size that does not
    fit."""

    network: Any
    autoencoder: Any
    text_encoder: Any
    tokenizer: Any
    image_encoder: Any
    speech_encoder: Any
    device: str
    offloaded: Sequence[Any] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def networks(self) -> tuple[Any, ...]:
        """Returns its torch modules."""
        return (
            self.network,
            self.autoencoder,
            self.text_encoder,
            self.image_encoder,
            self.speech_encoder,
        )

    @contextlib.contextmanager
    def offloading(self) -> Iterator[None]:
        """Moves encoders off the device at the end; the hook of an encoder moves it there when it is
        called."""
        try:
            yield
        finally:
            for hook in self.offloaded:
                hook.offload()


@dataclass(frozen=True, slots=True)
class Scene:
    """The conditions that all chunks share. `frame` (3, H, W) from -1 to 1 is the image. `stills` are by the
    number of frames: a short last chunk needs its own."""

    text: torch.Tensor
    no_text: torch.Tensor
    image: torch.Tensor
    frame: torch.Tensor
    colours: Colours
    stills: dict[int, torch.Tensor]
    masks: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step, counted from 1, of a chunk, counted from 0."""

    chunk: Chunk
    number: int
    of: int


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of the video: (n, 3, H, W) from -1 to 1, on the CPU; `first` is the number of the first. `known`
    comes with the last of a chunk that others follow: the latents with which the next one begins."""

    chunk: Chunk
    first: int
    pixels: torch.Tensor
    known: torch.Tensor | None = None


OnStep: TypeAlias = Callable[[Step], bool]
"""Called after each step; returns whether to go on."""


def encode_scene(
    pipeline: VideoPipeline,
    prompt: str,
    image: torch.Tensor,
    masks: torch.Tensor | None = None,
    texts: Callable[[Sequence[str]], tuple[torch.Tensor, ...]] | None = None,
) -> Scene:
    """Encodes a scene: `image` (3, H, W) from -1 to 1, already in the bucket's size. `masks` (2, H, W) of two
    speakers. `texts` encodes prompts, as `encode_prompts` does."""
    import torch

    from stoker.models.talking_video.video.colour import colours_of

    with torch.inference_mode():
        prompts = [prompt, UNWANTED]
        text, no_text = encode_prompts(pipeline, prompts) if texts is None else texts(prompts)
        return Scene(
            text=text,
            no_text=no_text,
            image=image_tokens(pipeline, image),
            frame=image.to(pipeline.device),
            colours=colours_of(image.to(pipeline.device)),
            stills={},
            masks=None if masks is None else token_masks(masks).to(pipeline.device),
        )


def generate(
    pipeline: VideoPipeline,
    scene: Scene,
    speech: Speech | TwoSpeakers,
    settings: SamplingSettings,
    size: str,
    seed: int,
    on_step: OnStep,
    go_on: Callable[[], bool] = lambda: True,
    begun: int = 0,
    known: torch.Tensor | None = None,
) -> Generator[Frames, None, None]:
    """Yields the frames of the video from `begun` on, where a chunk begins with the latents `known`; all by
    default. Raises sampling.Stopped when `on_step`, or within a step `go_on`, returns False."""
    import torch

    if (scene.masks is None) != (len(speakers_of(speech)) == 1):
        raise ValueError("a scene has the masks of two speakers if and only if there is the audio of two")
    for chunk in plan(speech.frames, settings.shape):
        if chunk.output.start < begun:
            continue
        arguments = (scene, speech, chunk, None, settings, size, seed, on_step, go_on, known)
        last: torch.Tensor | None = None
        held: Frames | None = None
        for decoded, new in chunk_frames(pipeline, *arguments):
            latest = decoded if last is None else torch.cat([last, decoded])
            last = latest[-settings.shape.motion :]
            if held is not None and new is not None:
                yield held
            held = new or held
        assert held is not None  # each chunk outputs some
        with torch.inference_mode():
            known = _known(pipeline, scene, last) if chunk.output.stop < speech.frames else None
        yield replace(held, known=known)


def chunk_frames(
    pipeline: VideoPipeline,
    scene: Scene,
    speech: Speech | TwoSpeakers,
    chunk: Chunk,
    motion: torch.Tensor | None,
    settings: SamplingSettings,
    size: str,
    seed: int,
    on_step: OnStep,
    go_on: Callable[[], bool] = lambda: True,
    known: torch.Tensor | None = None,
) -> Iterator[tuple[torch.Tensor, Frames | None]]:
    """Generates one chunk: each group of its decoded frames, and the part of the group that is new.

    `motion` (n, 3, H, W): the last frames of the chunk before, None for the first; or `known`, their latents.
    """
    import torch

    from stoker.models.talking_video.network.frames_from_latents import decoded
    from stoker.models.talking_video.sampling.sampling import denoised, noise_of
    from stoker.models.talking_video.video.colour import matched

    with torch.inference_mode():
        known = _known(pipeline, scene, motion) if known is None else known
        conditions = conditions_of(pipeline, scene, speech, chunk)
        shape = (1, known.shape[1], chunk.latents, *known.shape[3:])
        steps = levels(settings.steps, settings.shift[size])
        with step_caches.forgotten(pipeline.network):
            latents = denoised(
                pipeline.network,
                conditions,
                noise_of(seed, chunk.index, shape).to(pipeline.device),
                known,
                steps,
                settings.guidance,
                lambda done: on_step(Step(chunk, done, settings.steps)),
                go_on,
            )
        finite.check(latents, "latents")
        first = chunk.first
        for group in decoded(pipeline.autoencoder, latents):
            finite.check(group, "pixels")
            frames = matched(group, scene.colours)
            yield frames, _new_frames(chunk, first, frames)
            first += len(frames)


def run_once(network: Any, settings: SamplingSettings, width: int, height: int) -> None:
    """Runs one forward of the network with zeros, in the shapes of a chunk of a video of this size in
    pixels."""
    import torch

    config, latents = network.config, latents_of(settings.shape.frames)
    width, height = width // settings.shrink, height // settings.shrink
    zeros = functools.partial(torch.zeros, device=network.audio_proj.proj3.weight.device, dtype=network.dtype)
    with torch.inference_mode():
        network(
            zeros(1, config.in_channels, latents, height // 8, width // 8),
            torch.full((1,), 500.0, device=zeros(1).device),
            zeros(1, TEXT_TOKENS, config.text_dim),
            zeros(1, IMAGE_TOKENS, config.image_dim),
            zeros(1, latents, config.audio_tokens, config.audio_dim),
        )


def code_once(autoencoder: Any, settings: SamplingSettings, width: int, height: int, device: str) -> None:
    """Encodes the image and the last frames of a chunk, and decodes a chunk, in the shapes of a video of this
    size in pixels, all zeros."""
    import torch

    from stoker.models.talking_video.network.frames_from_latents import decoded, encoded

    width, height = width // settings.shrink, height // settings.shrink
    with torch.inference_mode():
        for frames in (settings.shape.frames, settings.shape.motion, 1):
            latents = encoded(autoencoder, torch.zeros(1, 3, frames, height, width, device=device))
            if frames == settings.shape.frames:
                for _ in decoded(autoencoder, latents):
                    pass


def _new_frames(chunk: Chunk, first: int, frames: torch.Tensor) -> Frames | None:
    """Returns the part of a group that is new and before the end of the video."""
    begin, end = max(first, chunk.output.start), min(first + len(frames), chunk.output.stop)
    if begin >= end:
        return None
    return Frames(chunk, begin, frames[begin - first : end - first].cpu())


def _known(pipeline: VideoPipeline, scene: Scene, motion: torch.Tensor | None) -> torch.Tensor:
    """Returns the latents that are not sampled: those of the image, or of the last frames of the chunk
    before."""
    from stoker.models.talking_video.network.frames_from_latents import encoded

    frames = scene.frame.unsqueeze(0) if motion is None else motion
    return encoded(pipeline.autoencoder, frames.transpose(0, 1).unsqueeze(0))


def conditions_of(
    pipeline: VideoPipeline, scene: Scene, speech: Speech | TwoSpeakers, chunk: Chunk
) -> Conditions:
    from stoker.models.talking_video.sampling.sampling import Conditions

    audio, silence = audio_tokens(pipeline, speech, chunk)
    return Conditions(
        text=scene.text,
        no_text=scene.no_text,
        image=scene.image,
        still=_still(pipeline, scene, chunk.frames),
        audio=audio,
        silence=silence,
        masks=scene.masks,
    )


def audio_tokens(
    pipeline: VideoPipeline, speech: Speech | TwoSpeakers, chunk: Chunk
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the projected audio of a chunk, (1, T, tokens, width), which for two speakers holds the tokens
    of both; and the projection of silence, which has the tokens of one speaker."""
    import torch

    from stoker.models.talking_video.audio.tokens import window_indices

    network = pipeline.network
    with torch.inference_mode():
        indices = window_indices(chunk, speech.frames, network.config.audio_window)
        first, last = int(indices.min()), int(indices.max()) + 1
        windows = [
            speaker.features(first, last)[indices - first].unsqueeze(0).to(pipeline.device, network.dtype)
            for speaker in speakers_of(speech)
        ]
        tokens = torch.cat([network.audio_proj(one) for one in windows], dim=2)
        return tokens, network.audio_proj(torch.zeros_like(windows[0]))


def speakers_of(speech: Speech | TwoSpeakers) -> tuple[Speech, ...]:
    from stoker.models.talking_video.audio.speech import TwoSpeakers

    return (speech.first, speech.second) if isinstance(speech, TwoSpeakers) else (speech,)


def _still(pipeline: VideoPipeline, scene: Scene, frames: int) -> torch.Tensor:
    """Returns the condition that holds the image: a mask that is one at the first frame, and the latents of
    the image followed by grey frames. Cached by length, since so many frames must be encoded for the
    condition."""
    import torch

    from stoker.models.talking_video.network.frames_from_latents import encoded

    if frames not in scene.stills:
        video = scene.frame.new_zeros((1, 3, frames, *scene.frame.shape[1:]))
        video[:, :, 0] = scene.frame
        latents = encoded(pipeline.autoencoder, video)
        mask = torch.zeros_like(latents[:, :4])
        mask[:, :, 0] = 1.0
        scene.stills[frames] = torch.cat([mask, latents], dim=1)
    return scene.stills[frames]


def encode_prompts(pipeline: VideoPipeline, texts: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """Encodes each text as (1, 512, width) with zeros after its end, as Wan was trained."""
    import torch

    tokens = pipeline.tokenizer(
        [cleaned(text) for text in texts],
        padding="max_length",
        max_length=TEXT_TOKENS,
        truncation=True,
        add_special_tokens=True,
        return_attention_mask=True,
        return_tensors="pt",
    )
    with torch.inference_mode(), pipeline.offloading():
        mask = tokens.attention_mask.to(pipeline.device)
        states = pipeline.text_encoder(tokens.input_ids.to(pipeline.device), mask).last_hidden_state
    kept = (states * mask.unsqueeze(-1)).to(pipeline.device, pipeline.network.dtype)
    return tuple(kept.split(1))


def image_tokens(pipeline: VideoPipeline, image: torch.Tensor) -> torch.Tensor:
    """Returns the output of the last but one layer of the image encoder, (1, tokens, width). The whole image
    is scaled to a square, not cropped, as the model was trained."""
    import torch

    side = pipeline.image_encoder.config.image_size
    square = torch.nn.functional.interpolate(
        image.unsqueeze(0).float(), size=(side, side), mode="bicubic", align_corners=False
    )
    mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in (CLIP_MEAN, CLIP_DEVIATION))
    scaled = ((square * 0.5 + 0.5).cpu() - mean) / deviation
    encoder = pipeline.image_encoder
    with torch.inference_mode(), pipeline.offloading():
        states = encoder(scaled.to(pipeline.device, encoder.dtype), output_hidden_states=True).hidden_states
    tokens: torch.Tensor = states[-2].to(pipeline.device, pipeline.network.dtype)
    return tokens


def token_masks(masks: torch.Tensor) -> torch.Tensor:
    """Masks (2, H, W) of two speakers to masks of the reference frame's tokens, with one of the background:
    (3, H/16 * W/16). Each token's share of the masked pixels is rounded to zero or one."""
    import torch

    tokens = torch.nn.functional.avg_pool2d(masks.float().unsqueeze(0), PIXELS_PER_TOKEN)[0].flatten(1) > 0.5
    background = ~tokens.any(dim=0, keepdim=True)
    return torch.cat([tokens, background]).float()
