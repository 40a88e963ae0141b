"""Captions of scenes: sentences that name everything, as prompts are completed to before they are drawn."""

from __future__ import annotations

from stoker.models.text_to_image.mini.completion import Part, sentence
from training.flux_mini.scenes import Scene


def caption(scene: Scene) -> str:
    """Returns the caption of a scene in lower case, its words divided by spaces."""
    parts = [
        Part(group.drawable.name, group.count, group.colour, group.position, group.size)
        for group in scene.groups
    ]
    return sentence(parts, scene.background)
