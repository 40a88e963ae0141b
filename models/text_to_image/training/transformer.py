"""Trains the transformer of `flux-mini` and its two text encoders, by flow matching.

    python -m stoker.models.text_to_image.training.transformer FOLDER --minutes 60 [--guidance] [--finish]

A latent x is mixed with noise e at a level s: (1 - s) x + s e. The network reads the mixture and the caption,
and learns e - x (Lipman et al., "Flow Matching for Generative Modeling", 2023). Levels are drawn as for
Stable Diffusion 3 and shifted by the number of tokens, as the pipeline's scheduler shifts them.

The blocks are compiled, which takes a minute or two and makes a step twice as fast on a CPU.

With `--guidance` it learns what FLUX.1-dev was distilled to do: to read the factor of classifier-free
guidance as an input, and to return in one forward what takes two otherwise.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path
from typing import Any

import torch
from diffusers import FluxTransformer2DModel
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from stoker.models.text_to_image.mini import networks
from stoker.models.text_to_image.training.captions import caption
from stoker.models.text_to_image.training.latents import Shard, load
from stoker.models.text_to_image.training.scenes import Scene
from stoker.models.text_to_image.training.shapes import begin_with_shapes
from stoker.models.text_to_image.training.stretch import DEVICE, Optimizers, Stretch

TOKENS = 5000
FEW_TOKENS = 150
"""Up to so many, attention is faster on a CPU as plain products of matrices."""
NO_CAPTION = 0.1
MOST_GUIDANCE = 8.0


class Networks(nn.Module):
    """The transformer with its text encoders."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = FluxTransformer2DModel(**networks.TRANSFORMER)
        self.t5 = T5EncoderModel(T5Config(**networks.T5))
        self.clip = CLIPTextModel(CLIPTextConfig(**networks.CLIP))
        begin_with_shapes(self.t5.shared, self.clip.get_input_embeddings())

    def read(self, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """The embeddings of each token and of each text."""
        t5 = torch.tensor([networks.t5_tokens(text) for text in texts], device=DEVICE)
        clip = torch.tensor([networks.clip_tokens(text) for text in texts], device=DEVICE)
        return self.t5(t5).last_hidden_state, self.clip(clip).pooler_output

    def velocity(
        self,
        mixture: torch.Tensor,
        level: torch.Tensor,
        guidance: torch.Tensor,
        text: tuple[torch.Tensor, torch.Tensor],
        places: torch.Tensor,
    ) -> torch.Tensor:
        few = DEVICE == "cpu" and mixture.shape[1] <= FEW_TOKENS
        with sdpa_kernel([SDPBackend.MATH] if few else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            found: torch.Tensor = self.transformer(
                hidden_states=mixture,
                timestep=level,
                guidance=guidance,
                encoder_hidden_states=text[0],
                pooled_projections=text[1],
                txt_ids=torch.zeros(text[0].shape[1], 3, device=DEVICE),
                img_ids=places,
                return_dict=False,
            )[0]
        return found.float()


def packed(latents: torch.Tensor) -> torch.Tensor:
    """(n, channels, rows, columns) as tokens of 2 x 2, as FluxPipeline packs them."""
    n, channels, rows, columns = latents.shape
    blocks = latents.view(n, channels, rows // 2, 2, columns // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return blocks.reshape(n, rows * columns // 4, 4 * channels)


def positions(rows: int, columns: int) -> torch.Tensor:
    """Where each token lies: (rows x columns, 3), the first number unused, as FluxPipeline has it."""
    found = torch.zeros(rows, columns, 3)
    found[..., 1] += torch.arange(rows)[:, None]
    found[..., 2] += torch.arange(columns)[None]
    return found.reshape(-1, 3)


def levels(number: int, tokens: int) -> torch.Tensor:
    """Levels of noise for images of so many tokens: a logit-normal distribution, shifted."""
    few, many = networks.SCHEDULER["base_image_seq_len"], networks.SCHEDULER["max_image_seq_len"]
    low, high = networks.SCHEDULER["base_shift"], networks.SCHEDULER["max_shift"]
    shift = low + (high - low) * (tokens - few) / (many - few)
    return torch.sigmoid(torch.randn(number) * 1.3 + shift)


class Shards:
    """The shards of a folder, in memory; new ones are found as they come."""

    def __init__(self, folder: Path, rng: random.Random, tokens: int, largest: int, single: float) -> None:
        """Batches have about so many `tokens`, and images of at most `largest` tokens. At least a part
        `single` of them shows one object alone."""
        self._folder, self._rng, self._tokens, self._largest = folder, rng, tokens, largest
        self._single = single
        self._seen: set[Path] = set()
        self._shards: list[Shard] = []

    def look(self) -> int:
        """Loads what is new, and returns how many scenes there are."""
        for path in self._folder.glob("*.shard"):
            if path not in self._seen:
                self._seen.add(path)
                if math.prod((shard := load(path)).latents.shape[2:]) // 4 <= self._largest:
                    self._shards.append(shard)
        return sum(len(shard.scenes) for shard in self._shards)

    def scale(self) -> tuple[float, float]:
        """The mean and the deviation of the latents."""
        numbers = torch.cat([shard.latents[:8].float().flatten() for shard in self._shards])
        return numbers.mean().item(), numbers.std().item()

    def batch(self) -> tuple[list[str], torch.Tensor]:
        """Captions and latents of one size."""
        shape = self._rng.choice([shard.latents.shape[2:] for shard in self._shards])
        shards = [shard for shard in self._shards if shard.latents.shape[2:] == shape]
        number = max(4, self._tokens // (math.prod(shape) // 4 + networks.TEXT_TOKENS))
        chosen = [(shard, self.choose(shard.scenes)) for shard in self._rng.choices(shards, k=number)]
        texts = [caption(shard.scenes[index], self._rng) for shard, index in chosen]
        return texts, torch.stack([shard.latents[index] for shard, index in chosen]).float()

    def choose(self, scenes: list[Scene]) -> int:
        """The index of one, with at least the wanted share of those that show one object alone."""
        alone = [index for index, scene in enumerate(scenes) if scene.is_single]
        if alone and self._rng.random() < self._single:
            return self._rng.choice(alone)
        return self._rng.randrange(len(scenes))


class Lesson:
    """The loss of one step. With a teacher, the network learns guidance from it."""

    def __init__(self, model: Networks, shards: Shards, teacher: Networks | None) -> None:
        self.model, self.shards, self.teacher = model, shards, teacher

    def loss(self, step: int) -> torch.Tensor:
        if step % 200 == 0:
            self.shards.look()
        texts, latents = self.shards.batch()
        texts = ["" if random.random() < NO_CAPTION else text for text in texts]
        tokens = packed((latents - networks.SHIFT) * networks.SCALE).to(DEVICE)
        places = positions(latents.shape[2] // 2, latents.shape[3] // 2).to(DEVICE)
        level = levels(len(texts), tokens.shape[1]).to(DEVICE)
        noise = torch.randn_like(tokens)
        mixture = torch.lerp(tokens, noise, level[:, None, None])
        guidance = torch.ones(len(texts), device=DEVICE)
        target = noise - tokens
        with torch.autocast(DEVICE, torch.bfloat16):
            if self.teacher is not None:
                guidance = 1 + (MOST_GUIDANCE - 1) * torch.rand_like(guidance)
                target = self._guided(mixture, level, guidance, texts, places)
            made = self.model.velocity(mixture, level, guidance, self.model.read(texts), places)
        return (made - target).square().mean()

    @torch.no_grad()
    def _guided(
        self,
        mixture: torch.Tensor,
        level: torch.Tensor,
        guidance: torch.Tensor,
        texts: list[str],
        places: torch.Tensor,
    ) -> torch.Tensor:
        assert self.teacher is not None
        one = torch.ones_like(guidance)
        with_text = self.teacher.velocity(mixture, level, one, self.teacher.read(texts), places)
        without = self.teacher.velocity(mixture, level, one, self.teacher.read([""] * len(texts)), places)
        return without + guidance[:, None, None] * (with_text - without)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--guidance", action="store_true")
    parser.add_argument("--finish", action="store_true")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="in a batch, of images and texts together")
    parser.add_argument("--largest", type=int, default=10**6, help="leaves out images of more tokens")
    parser.add_argument("--single", type=float, default=0.0, help="the share of images with one object")
    options = parser.parse_args()
    shards = Shards(
        options.folder / "shards", random.Random(), options.tokens, options.largest, options.single
    )
    print(f"{shards.look()} scenes, mean and deviation of their latents: {shards.scale()}", flush=True)
    model, teacher = Networks().to(DEVICE), None
    plain = options.folder / "transformer.pt"
    if options.guidance:
        teacher = Networks().to(DEVICE).requires_grad_(False)
        state: dict[str, Any] = torch.load(plain, weights_only=True, map_location=DEVICE)["average"]
        teacher.load_state_dict(state)
        model.load_state_dict(state)
    model.transformer.compile_repeated_blocks(dynamic=True)
    edges = ("embed", "shared", "relative_attention_bias", "transformer.norm_out", "transformer.proj_out")
    optimizers = Optimizers(model, options.rate, edges)
    lesson = Lesson(model, shards, teacher)
    checkpoint = options.folder / "guided.pt" if options.guidance else plain
    stretch = Stretch(model, optimizers, checkpoint, options.minutes, options.finish)
    stretch.run(lesson.loss, lambda step, average: "")


if __name__ == "__main__":
    main()
