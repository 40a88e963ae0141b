"""FLUX.1 as `flux-mini`: the same classes and the same code, for prompts in the words that it was trained on.

A prompt is read in those words before the tokenizers see it, and the answer says what was read otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker.models.interface import ImageParameters
from stoker.models.text_to_image.families.flux import Flux
from stoker.models.text_to_image.mini import words


class FluxMini(Flux):
    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        negative = words.read(parameters.negative_prompt or "", draws=False).text
        known = replace(parameters, negative_prompt=negative or None)
        return super().arguments(known) | {"prompt": words.read(parameters.prompt).text}

    def notes(self, parameters: ImageParameters) -> dict[str, Any]:
        """Which words of the prompt it read as another, and which it does not draw."""
        return words.read(parameters.prompt).notes
