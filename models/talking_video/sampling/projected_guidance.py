"""Adaptive projected guidance (APG): guidance that turns the velocity and does not lengthen it.

    difference of two forwards ─> plus `momentum` times what was there before ─> at most `norm_most` long
        ─> only its part orthogonal to the velocity with all conditions ─> times (scale - 1), added to that

Large scales make colours more saturated from chunk to chunk, by the part that is parallel to the velocity,
which is left out here. The formula is of Sadat et al., "Eliminating Oversaturation and Artifacts of High
Guidance Scales in Diffusion Models" (arXiv 2410.02416), with the orthogonal part alone, and for two scales as
in InfiniteTalk's code (github.com/MeiGen-AI/InfiniteTalk at 0107cd9: `adaptive_projected_guidance` of
wan/utils/multitalk_utils.py, and its use in wan/multitalk.py):

    three forwards   c + (text - 1) P(c - a) + (audio - 1) P(a - u)    c, a and u as in `schedule`
    two              c + (audio - 1) P(c - d)
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stoker.models.talking_video.sampling.schedule import Forward, Guidance, Projection, forwards


class ProjectedGuidance:
    """The guidance of one chunk, whose momentum goes from step to step: each chunk begins with a new one."""

    def __init__(self, guidance: Guidance, projection: Projection) -> None:
        self._guidance, self._projection = guidance, projection
        self._before: dict[str, torch.Tensor] = {}

    def combine(self, velocity: Callable[[Forward], torch.Tensor]) -> torch.Tensor:
        """Returns the velocity of one step; the forwards are those of `schedule.combine`."""
        needed = forwards(self._guidance)
        full = velocity("all")
        if len(needed) == 1:
            return full
        if len(needed) == 2:
            return full + (self._guidance.audio - 1) * self._projected("audio", full - velocity("text"), full)
        audio, nothing = velocity("audio"), velocity("nothing")
        by_text = self._projected("text", full - audio, full)
        by_audio = self._projected("audio", audio - nothing, full)
        return full + (self._guidance.text - 1) * by_text + (self._guidance.audio - 1) * by_audio

    def _projected(self, of: str, difference: torch.Tensor, full: torch.Tensor) -> torch.Tensor:
        if of in self._before:
            difference = difference + self._projection.momentum * self._before[of]
        self._before[of] = difference
        shrink = (self._projection.norm_most / difference.norm()).clamp(max=1.0)
        return orthogonal(difference * shrink, full)


def orthogonal(difference: torch.Tensor, full: torch.Tensor) -> torch.Tensor:
    """Returns the part of a difference that is orthogonal to `full`, over all elements; computed in
    float64."""
    wide, along = difference.double(), full.double()
    along = along / along.norm().clamp(min=1e-12)
    found: torch.Tensor = (wide - (wide * along).sum() * along).to(difference.dtype)
    return found
