"""The training of the transformer of `flux-mini` and its two text encoders, by flow matching.

A latent x is mixed with noise e at a level s: (1 - s) x + s e. The network reads the mixture and the caption,
and learns e - x (Lipman et al., "Flow Matching for Generative Modeling", 2023). Half of the levels are drawn
as for Stable Diffusion 3 and shifted by the number of tokens, as the pipeline's scheduler shifts them. The
other half are close to pure noise, where all that can be known of an image is what its caption says: there
the shapes of objects are learnt.

The blocks are compiled, which takes a minute or two and makes a step faster on a CPU.

The factor of guidance is random, so that the network learns to take no notice of it.
"""

from __future__ import annotations

import copy
import math
import random
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import FluxTransformer2DModel
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from stoker.models.text_to_image.mini import networks
from stoker.models.text_to_image.mini.vocabulary import DRAWABLES
from training.flux_mini import scene_files
from training.flux_mini.autoencoder import as_tensor
from training.flux_mini.captions import caption
from training.flux_mini.drawing import draw
from training.flux_mini.optimizers import DEVICE, Optimizers, quicker
from training.flux_mini.recipe import TOKEN, Phase, Recipe, Size, Stage
from training.flux_mini.run import Run
from training.flux_mini.scenes import Group, Scene, boxes
from training.flux_mini.shapes import begin_with_shapes

EDGES: Final = (
    *("embed", "shared", "relative_attention_bias"),
    *("transformer.norm_out", "transformer.proj_out"),
)
"""Parts of the names of the first and the last layers."""
FEW_TOKENS = 150
"""Up to so many, attention is faster on a CPU as plain products of matrices."""
NO_CAPTION = 0.01
MOST_GUIDANCE = 8.0
NEAR_NOISE = 0.5
"""The share of levels that are drawn from 0.9 to 1."""
OBJECTS = 3.0
"""How much more a token counts that shows an object than one that shows only the background."""


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
        """Returns the embeddings of each token and of each text."""
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
    """Packs (n, channels, rows, columns) as tokens of 2 x 2, as FluxPipeline packs them."""
    n, channels, rows, columns = latents.shape
    blocks = latents.view(n, channels, rows // 2, 2, columns // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return blocks.reshape(n, rows * columns // 4, 4 * channels)


def positions(rows: int, columns: int) -> torch.Tensor:
    """Returns where each token lies: (rows x columns, 3), the first number unused, as FluxPipeline has it."""
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
    """Returns how much each token of an image counts: those of objects more, on average 1."""
    found = torch.ones(rows, columns)
    for group in scene.groups:
        for box in boxes(group, TOKEN * columns, TOKEN * rows):
            left, top = (max(0, math.floor((at - box.side / 2) / TOKEN)) for at in (box.x, box.y))
            right, bottom = (math.ceil((at + box.side / 2) / TOKEN) for at in (box.x, box.y))
            found[top:bottom, left:right] = OBJECTS
    return found.flatten() / found.mean()


class Scenes:
    """All scenes of a phase, in memory, by their size and kind."""

    def __init__(self, folder: Path, phase: Phase) -> None:
        self._phase = phase
        self._kinds: dict[tuple[Size, str], list[tuple[Scene, torch.Tensor]]] = {}
        for size in phase.scenes:
            for path in sorted(scene_files.of_size(folder, size).glob("*.part")):
                part = scene_files.load(path)
                for scene, latents in zip(part.scenes, part.latents, strict=True):
                    self._kinds.setdefault((size, scene.kind), []).append((scene, latents))

    def batch(self, rng: random.Random, stage: Stage) -> tuple[list[str], torch.Tensor, torch.Tensor]:
        """Returns captions, latents, and how much each token counts, of scenes in the shares of a stage."""
        [size] = rng.choices(list(stage.sizes), list(stage.sizes.values()))
        kinds = rng.choices(list(stage.kinds), list(stage.kinds.values()), k=self._phase.batch(size))
        chosen = [rng.choice(self._kinds[size, kind]) for kind in kinds]
        texts = ["" if rng.random() < NO_CAPTION else caption(scene) for scene, _ in chosen]
        latents = torch.stack([latents for _, latents in chosen]).float()
        rows, columns = latents.shape[2] // 2, latents.shape[3] // 2
        return texts, latents, torch.stack([emphasis(scene, rows, columns) for scene, _ in chosen])


def tokens_of(latents: torch.Tensor) -> torch.Tensor:
    return packed((latents - networks.SHIFT) * networks.SCALE)


def loss(model: Networks, texts: list[str], latents: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    tokens = tokens_of(latents).to(DEVICE)
    places = positions(latents.shape[2] // 2, latents.shape[3] // 2).to(DEVICE)
    level = levels(len(texts), tokens.shape[1]).to(DEVICE)
    noise = torch.randn_like(tokens)
    mixture = torch.lerp(tokens, noise, level[:, None, None])
    guidance = 1 + (MOST_GUIDANCE - 1) * torch.rand(len(texts), device=DEVICE)
    with quicker():
        made = model.velocity(mixture, level, guidance, model.read(texts), places)
    return ((made - (noise - tokens)).square().mean(2) * counts.to(DEVICE)).mean()


def train(recipe: Recipe, phase: Phase, networks_: Networks, autoencoder: Any, folder: Path) -> Networks:
    """Trains networks further, through one phase, on its scenes in a folder, which gets the checkpoints."""
    model = copy.deepcopy(networks_).to(DEVICE)
    optimizers = Optimizers(model, phase.schedule.rate, EDGES)
    scenes, exam = Scenes(folder / "scenes", phase), Exam(autoencoder, next(iter(phase.scenes)))
    run = Run(
        *(model, optimizers, phase.schedule, folder / f"{phase.name}.pt"),
        *(recipe.seed, recipe.save_every, recipe.score_every),
    )
    if recipe.compiled:
        model.transformer.compile_repeated_blocks()

    def loss_of(step: int, rng: random.Random) -> torch.Tensor:
        return loss(model, *scenes.batch(rng, phase.stage(step)))

    return run.train(loss_of, exam.score, phase.name)


class Exam:
    """A score of what a network expects to see in pure noise: of one object in the middle, before a
    background and in a colour that all have."""

    def __init__(self, autoencoder: Any, size: Size) -> None:
        width, height = size
        scenes = [Scene((Group(one, "red", 1),), "white") for one in DRAWABLES]
        drawn = [draw(scene, width, height, random.Random(0)) for scene in scenes]
        latents = [scene_files.encoded(autoencoder, as_tensor([image])).float() for image in drawn]
        self._tokens, self._texts = tokens_of(torch.cat(latents)), [caption(scene) for scene in scenes]
        self._places = positions(height // TOKEN, width // TOKEN).to(DEVICE)

    @torch.inference_mode()
    def score(self, model: Networks) -> str:
        """Returns the share of objects whose drawing is nearest to what is expected for them, and its
        error."""
        noise = torch.randn(self._tokens.shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)
        ones = torch.ones(len(noise), device=DEVICE)
        expected = noise - model.velocity(noise, ones, ones, model.read(self._texts), self._places)
        right = torch.cdist(expected.flatten(1).cpu(), self._tokens.flatten(1)).argmin(1)
        share = (right == torch.arange(len(right))).float().mean()
        error = (expected.cpu() - self._tokens).square().mean()
        return f"{share:.0%} nearest to the right object, error {error:.3f}"
