"""From a folder, a picture and a voice to frames: free functions, chunk by chunk.

    load ──> Talker
    see(talker, prompt, picture) ──> Scene: what every chunk is made from, computed once
    talk(talker, scene, speech, …) ──> frames of chunk 0, of chunk 1, …      one chunk is in memory at a time

        chunk:  noise ─> denoised ─> decoded latent by latent ─> colours of the picture ─> frames
                  ^ the last frames of the chunk before, encoded

Nothing heavy is imported until it is needed. Frames are given as soon as their latent is decoded.
"""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from stoker.models.talking_video.chunks import Chunk, plan
from stoker.models.talking_video.profiles import UNWANTED, Profile
from stoker.models.talking_video.schedule import levels

if TYPE_CHECKING:
    import torch

    from stoker.models.talking_video.colour import Colours
    from stoker.models.talking_video.sampling import Conditions
    from stoker.models.talking_video.speech import Speech, TwoVoices

__all__ = ["Frames", "OnStep", "Scene", "Step", "Talker", "chunk_frames", "see", "talk"]

TEXT_TOKENS = 512
PIXELS_PER_TOKEN = 16
"""The autoencoder's eight, and two latents of a patch."""

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_DEVIATION = (0.26862954, 0.26130258, 0.27577711)
"""Of the pictures that CLIP was trained on (openai/CLIP)."""


@dataclass(frozen=True, slots=True)
class Talker:
    """The loaded parts, classes of diffusers and transformers. `rest`: where the encoders of words and
    pictures are while they do not work, None where they stay. `refused`: a sentence for each size that does
    not fit."""

    network: Any
    autoencoder: Any
    text_encoder: Any
    tokenizer: Any
    picture_encoder: Any
    speech_encoder: Any
    device: str
    rest: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def at_work(self, encoder: Any) -> Iterator[Any]:
        """The encoder on the device, for as long as it works."""
        if self.rest is None:
            yield encoder
            return
        try:
            yield encoder.to(self.device)
        finally:
            encoder.to(self.rest)


@dataclass(frozen=True, slots=True)
class Scene:
    """What all chunks share. `frame` (3, H, W) from -1 to 1 is the picture; `stills` by number of frames: a
    short last chunk needs its own."""

    text: torch.Tensor
    no_text: torch.Tensor
    picture: torch.Tensor
    frame: torch.Tensor
    colours: Colours
    stills: dict[int, torch.Tensor]
    masks: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step, counted from 1, of one chunk, counted from 0."""

    chunk: Chunk
    number: int
    of: int


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames that are given out: (n, 3, H, W) from -1 to 1, on the CPU; `first` is the number of the
    first."""

    chunk: Chunk
    first: int
    pixels: torch.Tensor


OnStep: TypeAlias = Callable[[Step], bool]
"""Told after each step; returns whether to go on."""


def see(talker: Talker, prompt: str, picture: torch.Tensor, masks: torch.Tensor | None = None) -> Scene:
    """`picture` (3, H, W) from -1 to 1, already of the bucket's size. `masks` (2, H, W) of two speakers."""
    import torch

    from stoker.models.talking_video.colour import colours_of

    with torch.inference_mode():
        text, no_text = words_of(talker, [prompt, UNWANTED])
        return Scene(
            text=text,
            no_text=no_text,
            picture=picture_tokens(talker, picture),
            frame=picture.to(talker.device),
            colours=colours_of(picture.to(talker.device)),
            stills={},
            masks=None if masks is None else token_masks(masks).to(talker.device),
        )


def talk(
    talker: Talker,
    scene: Scene,
    speech: Speech | TwoVoices,
    profile: Profile,
    size: str,
    seed: int,
    on_step: OnStep,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[Frames]:
    """All frames of the video, in order. Raises sampling.Stopped when `on_step`, or within a step `go_on`,
    says so."""
    import torch

    if (scene.masks is None) != (len(voices_of(speech)) == 1):
        raise ValueError("two voices need the masks of two speakers, and one voice none")
    motion: torch.Tensor | None = None
    for chunk in plan(speech.frames, profile.shape):
        made = chunk_frames(talker, scene, speech, chunk, motion, profile, size, seed, on_step, go_on)
        last: torch.Tensor | None = None
        for frames, shown in made:
            drawn = frames if last is None else torch.cat([last, frames])
            last = drawn[-profile.shape.motion :]
            if shown is not None:
                yield shown
        motion = last


def chunk_frames(
    talker: Talker,
    scene: Scene,
    speech: Speech | TwoVoices,
    chunk: Chunk,
    motion: torch.Tensor | None,
    profile: Profile,
    size: str,
    seed: int,
    on_step: OnStep,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[torch.Tensor, Frames | None]]:
    """One chunk alone: each group of its frames as decoded, and what of it is given out.

    `motion` (n, 3, H, W): the last frames of the chunk before, None for the first.
    """
    import torch

    from stoker.models.talking_video.colour import matched
    from stoker.models.talking_video.frames_from_latents import decoded
    from stoker.models.talking_video.sampling import denoised, noise_of

    with torch.inference_mode():
        known = _known(talker, scene, motion)
        conditions = conditions_of(talker, scene, speech, chunk)
        shape = (1, known.shape[1], chunk.latents, *known.shape[3:])
        steps = levels(profile.steps, profile.shift[size])
        latents = denoised(
            talker.network,
            conditions,
            noise_of(seed, chunk.index, shape).to(talker.device),
            known,
            steps,
            profile.guidance,
            lambda done: on_step(Step(chunk, done, profile.steps)),
            go_on,
        )
        place = chunk.first
        for group in decoded(talker.autoencoder, latents):
            frames = matched(group, scene.colours)
            yield frames, _shown(chunk, place, frames)
            place += len(frames)


def _shown(chunk: Chunk, place: int, frames: torch.Tensor) -> Frames | None:
    """The part of a group that is new, and before the end."""
    first, end = max(place, chunk.given.start), min(place + len(frames), chunk.given.stop)
    if first >= end:
        return None
    return Frames(chunk, first, frames[first - place : end - place].cpu())


def _known(talker: Talker, scene: Scene, motion: torch.Tensor | None) -> torch.Tensor:
    """Latents that are not drawn from noise."""
    from stoker.models.talking_video.frames_from_latents import encoded

    frames = scene.frame.unsqueeze(0) if motion is None else motion
    return encoded(talker.autoencoder, frames.transpose(0, 1).unsqueeze(0))


def conditions_of(talker: Talker, scene: Scene, speech: Speech | TwoVoices, chunk: Chunk) -> Conditions:
    from stoker.models.talking_video.sampling import Conditions

    audio, silence = voice_of(talker, speech, chunk)
    return Conditions(
        text=scene.text,
        no_text=scene.no_text,
        picture=scene.picture,
        still=_still(talker, scene, chunk.frames),
        audio=audio,
        silence=silence,
        masks=scene.masks,
    )


def voice_of(talker: Talker, speech: Speech | TwoVoices, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """The projected audio of a chunk, (1, T, tokens, width), of two voices with the tokens of both; and what
    silence projects to, which is one voice's."""
    import torch

    from stoker.models.talking_video.audio_tokens import window_indices

    network = talker.network
    with torch.inference_mode():
        places = window_indices(chunk, speech.frames, network.config.audio_window)
        first, last = int(places.min()), int(places.max()) + 1
        windows = [
            voice.features(first, last)[places - first].unsqueeze(0).to(talker.device, network.dtype)
            for voice in voices_of(speech)
        ]
        heard = torch.cat([network.audio_proj(one) for one in windows], dim=2)
        return heard, network.audio_proj(torch.zeros_like(windows[0]))


def voices_of(speech: Speech | TwoVoices) -> tuple[Speech, ...]:
    from stoker.models.talking_video.speech import TwoVoices

    return (speech.first, speech.second) if isinstance(speech, TwoVoices) else (speech,)


def _still(talker: Talker, scene: Scene, frames: int) -> torch.Tensor:
    """What says where the picture is: a mask that is one at the first frame, and the latents of the picture
    followed by grey. Kept by length: it takes an encoding of as many frames."""
    import torch

    from stoker.models.talking_video.frames_from_latents import encoded

    if frames not in scene.stills:
        video = scene.frame.new_zeros((1, 3, frames, *scene.frame.shape[1:]))
        video[:, :, 0] = scene.frame
        latents = encoded(talker.autoencoder, video)
        mask = torch.zeros_like(latents[:, :4])
        mask[:, :, 0] = 1.0
        scene.stills[frames] = torch.cat([mask, latents], dim=1)
    return scene.stills[frames]


def words_of(talker: Talker, texts: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """Each text as (1, 512, width); what is beyond its end is zero, as Wan was trained. Entities of HTML are
    the letters that they name, and white space of any kind and length is one space."""
    import torch

    given = talker.tokenizer(
        [" ".join(html.unescape(html.unescape(text)).split()) for text in texts],
        padding="max_length",
        max_length=TEXT_TOKENS,
        truncation=True,
        add_special_tokens=True,
        return_attention_mask=True,
        return_tensors="pt",
    )
    with torch.inference_mode(), talker.at_work(talker.text_encoder) as encoder:
        mask = given.attention_mask.to(encoder.device)
        states = encoder(given.input_ids.to(mask.device), mask).last_hidden_state
    kept = (states * mask.unsqueeze(-1)).to(talker.device, talker.network.dtype)
    return tuple(kept.split(1))


def picture_tokens(talker: Talker, picture: torch.Tensor) -> torch.Tensor:
    """The last layer but one of the picture encoder, (1, tokens, width). The whole picture is squeezed into
    its square, not cropped: what the model was trained with."""
    import torch

    side = talker.picture_encoder.config.image_size
    square = torch.nn.functional.interpolate(
        picture.unsqueeze(0).float(), size=(side, side), mode="bicubic", align_corners=False
    )
    mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in (CLIP_MEAN, CLIP_DEVIATION))
    seen = ((square * 0.5 + 0.5).cpu() - mean) / deviation
    with torch.inference_mode(), talker.at_work(talker.picture_encoder) as encoder:
        states = encoder(seen.to(encoder.device, encoder.dtype), output_hidden_states=True).hidden_states
    tokens: torch.Tensor = states[-2].to(talker.device, talker.network.dtype)
    return tokens


def token_masks(masks: torch.Tensor) -> torch.Tensor:
    """Of two speakers (2, H, W), and the background, at the reference frame's tokens: (3, H/16 * W/16), each
    token's share of what is marked made zero or one."""
    import torch

    tokens = torch.nn.functional.avg_pool2d(masks.float().unsqueeze(0), PIXELS_PER_TOKEN)[0].flatten(1) > 0.5
    background = ~tokens.any(dim=0, keepdim=True)
    return torch.cat([tokens, background]).float()
