"""Trains the transformer of `flux-mini` and its two text encoders, by flow matching.

    python -m stoker.models.text_to_image.training.transformer FOLDER --minutes 60 [--finish]

A latent x is mixed with noise e at a level s: (1 - s) x + s e. The network reads the mixture and the caption,
and learns e - x (Lipman et al., "Flow Matching for Generative Modeling", 2023). Half of the levels are drawn
as for Stable Diffusion 3 and shifted by the number of tokens, as the pipeline's scheduler shifts them. The
other half are close to pure noise, where all that can be known of an image is what its caption says: there
the shapes of objects are learnt.

The blocks are compiled, which takes a minute or two and makes a step faster on a CPU.

The factor of guidance is random, so that the network learns to take no notice of it.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path

import torch
from diffusers import FluxTransformer2DModel
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from stoker.models.text_to_image.mini import networks
from stoker.models.text_to_image.training.captions import caption
from stoker.models.text_to_image.training.latents import load
from stoker.models.text_to_image.training.scenes import KINDS, Scene, boxes, shares
from stoker.models.text_to_image.training.shapes import begin_with_shapes
from stoker.models.text_to_image.training.stretch import DEVICE, Optimizers, Stretch

TOKENS = 5400
FEW_TOKENS = 150
"""Up to so many, attention is faster on a CPU as plain products of matrices."""
NO_CAPTION = 0.01
MOST_GUIDANCE = 8.0
NEAR_NOISE = 0.5
"""The share of levels that are drawn from 0.9 to 1."""
OBJECTS = 3.0
"""How much more a token counts that shows an object than one that shows only the background."""
PATCH = 16
"""The side of what one latent shows, in pixels."""


class Networks(nn.Module):
    """The transformer with its text encoders."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = FluxTransformer2DModel(**networks.TRANSFORMER)
        self.t5 = T5EncoderModel(T5Config(**networks.T5))
        self.clip = CLIPTextModel(CLIPTextConfig(**networks.CLIP))
        begin_with_shapes(self.t5.shared, self.clip.get_input_embeddings())
        begin(self.transformer)

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
    """Levels of noise for images of so many tokens: near 1, or from a logit-normal distribution, shifted."""
    few, many = networks.SCHEDULER["base_image_seq_len"], networks.SCHEDULER["max_image_seq_len"]
    low, high = networks.SCHEDULER["base_shift"], networks.SCHEDULER["max_shift"]
    shift = low + (high - low) * (tokens - few) / (many - few)
    shifted = torch.sigmoid(torch.randn(number) * 1.3 + shift)
    return torch.where(torch.rand(number) < NEAR_NOISE, 1 - 0.1 * torch.rand(number), shifted)


@torch.no_grad()
def begin(transformer: FluxTransformer2DModel) -> None:
    """Weights from which it learns sooner than from the library's: what it is told of the text and the level
    changes every block from the first step on, and what comes out is at first the mixture itself."""
    width = transformer.x_embedder.out_features
    for name, module in transformer.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        if "time_text_embed" in name:
            module.weight.normal_(0, 1.4 / math.sqrt(module.in_features))
            module.bias.zero_()
        elif name.endswith(("norm.linear", "norm1.linear", "norm1_context.linear", "norm_out.linear")):
            module.weight.normal_(0, 0.3 / math.sqrt(module.in_features))
            module.bias.zero_()
            for gate in {6: (2, 5), 3: (2,)}.get(module.out_features // width, ()):
                module.bias[gate * width : (gate + 1) * width] = 0.3
    outer, inner = transformer.x_embedder, transformer.proj_out
    turned, _ = torch.linalg.qr(torch.randn(width, outer.in_features))
    outer.weight.copy_(turned)
    inner.weight.copy_(turned.T * math.sqrt(outer.in_features / width))
    outer.bias.zero_()
    inner.bias.zero_()


def emphasis(scene: Scene, rows: int, columns: int) -> torch.Tensor:
    """How much each token of an image counts: those of objects more, on average 1."""
    found = torch.ones(rows, columns)
    side = 2 * PATCH
    for group in scene.groups:
        for box in boxes(group, side * columns, side * rows):
            left, top = (max(0, math.floor((at - box.side / 2) / side)) for at in (box.x, box.y))
            right, bottom = (math.ceil((at + box.side / 2) / side) for at in (box.x, box.y))
            found[top:bottom, left:right] = OBJECTS
    return found.flatten() / found.mean()


class Shards:
    """The shards of a folder, in memory; new ones are found as they come."""

    def __init__(
        self, folder: Path, rng: random.Random, tokens: int, kinds: dict[str, float], sizes: dict[str, float]
    ) -> None:
        """Batches have about so many `tokens`, and these shares of kinds of scenes and of sizes in pixels."""
        self._folder, self._rng, self._tokens = folder, rng, tokens
        self._kinds, self._sizes = kinds, sizes
        self._seen: set[Path] = set()
        self._found: dict[tuple[int, int], dict[str, list[tuple[Scene, torch.Tensor]]]] = {}

    def look(self) -> int:
        """Loads what is new, and returns how many scenes there are."""
        for path in self._folder.glob("*.shard"):
            if path not in self._seen:
                self._seen.add(path)
                shard = load(path)
                rows, columns = shard.latents.shape[2:]
                kinds = self._found.setdefault((rows, columns), {})
                for scene, latents in zip(shard.scenes, shard.latents, strict=True):
                    kinds.setdefault(scene.kind, []).append((scene, latents))
        return sum(len(found) for kinds in self._found.values() for found in kinds.values())

    def scale(self) -> tuple[float, float]:
        """The mean and the deviation of the latents."""
        some = [
            latents for kinds in self._found.values() for found in kinds.values() for _, latents in found[:50]
        ]
        numbers = torch.cat([latents.float().flatten() for latents in some])
        return numbers.mean().item(), numbers.std().item()

    def batch(self) -> tuple[list[str], torch.Tensor, torch.Tensor]:
        """Captions, latents of one size, and how much each token counts."""
        sizes = {shape: f"{PATCH * shape[1]}x{PATCH * shape[0]}" for shape in self._found}
        shares = [self._sizes.get(sizes[shape], 0.0) for shape in self._found]
        [shape] = self._rng.choices(list(self._found), shares)
        kinds = self._found[shape]
        number = max(4, self._tokens // (math.prod(shape) // 4 + networks.TEXT_TOKENS))
        weights = [self._kinds.get(kind, 0.0) for kind in kinds]
        chosen = [self._rng.choice(kinds[kind]) for kind in self._rng.choices(list(kinds), weights, k=number)]
        texts = [caption(scene) for scene, _ in chosen]
        counts = torch.stack([emphasis(scene, shape[0] // 2, shape[1] // 2) for scene, _ in chosen])
        return texts, torch.stack([latents for _, latents in chosen]).float(), counts


class Lesson:
    """The loss of one step."""

    def __init__(self, model: Networks, shards: Shards) -> None:
        self.model, self.shards = model, shards

    def loss(self, step: int) -> torch.Tensor:
        if step % 200 == 0:
            self.shards.look()
        texts, latents, counts = self.shards.batch()
        texts = ["" if random.random() < NO_CAPTION else text for text in texts]
        tokens = packed((latents - networks.SHIFT) * networks.SCALE).to(DEVICE)
        places = positions(latents.shape[2] // 2, latents.shape[3] // 2).to(DEVICE)
        level = levels(len(texts), tokens.shape[1]).to(DEVICE)
        noise = torch.randn_like(tokens)
        mixture = torch.lerp(tokens, noise, level[:, None, None])
        guidance = 1 + (MOST_GUIDANCE - 1) * torch.rand(len(texts), device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            made = self.model.velocity(mixture, level, guidance, self.model.read(texts), places)
        return ((made - (noise - tokens)).square().mean(2) * counts.to(DEVICE)).mean()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--finish", action="store_true")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="in a batch, of images and texts together")
    parser.add_argument("--kinds", default=KINDS, help="the share of each kind of scene")
    parser.add_argument("--sizes", default="256x256=1", help="the share of batches of each size, in pixels")
    options = parser.parse_args()
    shards = Shards(
        options.folder / "shards",
        random.Random(),
        options.tokens,
        shares(options.kinds),
        shares(options.sizes),
    )
    print(f"{shards.look()} scenes, mean and deviation of their latents: {shards.scale()}", flush=True)
    model = Networks().to(DEVICE)
    model.transformer.compile_repeated_blocks()
    edges = ("embed", "shared", "relative_attention_bias", "transformer.norm_out", "transformer.proj_out")
    optimizers = Optimizers(model, options.rate, edges)
    lesson = Lesson(model, shards)
    checkpoint = options.folder / "transformer.pt"
    stretch = Stretch(model, optimizers, checkpoint, options.minutes, options.finish)
    stretch.run(lesson.loss, lambda step, average: "")


if __name__ == "__main__":
    main()
