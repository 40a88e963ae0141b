"""The embedding of each name of an object that says what the object looks like, before the training begins.

The masks of all icons, as numbers, differ in at most as many directions as there are icons, so an embedding
can hold a mask in full. So the transformer can learn one way to draw a mask at a place; with random
embeddings it would have to learn each shape by itself. How much that saves has not been measured.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import nn

from stoker.models.text_to_image.mini.networks import FIRST_CLIP_WORD, FIRST_T5_WORD
from stoker.models.text_to_image.mini.vocabulary import DRAWABLES, WORDS
from training.flux_mini.drawing import masks

SIDE = 32
"""The side of a mask in numbers."""
OWN = 0.3
"""The part of its random embedding that a name keeps: the plural has the same mask as the singular."""


def shapes(width: int) -> torch.Tensor:
    """Returns a vector for each object, (objects, width), with deviation 1. The product of two vectors is
    that of the two masks, but for their mean and scale."""
    small = [masks(one.icon)[0].resize((SIDE, SIDE), Image.Resampling.BOX) for one in DRAWABLES]
    numbers = torch.from_numpy(np.stack([np.asarray(mask, np.float32).ravel() for mask in small]))
    left, sizes, _ = torch.linalg.svd(numbers - numbers.mean(0), full_matrices=False)
    turned, _ = torch.linalg.qr(
        torch.randn(width, len(DRAWABLES), generator=torch.Generator().manual_seed(0))
    )
    found: torch.Tensor = (left * sizes) @ turned.T
    return found / found.std()


@torch.no_grad()
def begin_with_shapes(t5: nn.Embedding, clip: nn.Embedding) -> None:
    """Changes the embeddings of all objects' names, in both text encoders."""
    for embedding, first in ((t5, FIRST_T5_WORD), (clip, FIRST_CLIP_WORD)):
        found = shapes(embedding.embedding_dim) * embedding.weight.std()
        for one, shape in zip(DRAWABLES, found, strict=True):
            for name in (one.name, one.plural):
                row = embedding.weight[first + WORDS.index(name)]
                row.copy_(OWN * row + shape)
