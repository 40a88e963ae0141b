"""The slits of the mouth and the eyes: the lines of their edges, corrected by what the pixels show. Pure.

A *frame of reference* has its origin in the middle of the slit, its first axis along it and its second down
the face; its unit is a pixel. Lines are given as heights over the first axis. The mesh misses the lines of
many drawings: closed lips are put on their own dark line, from one of its ends to the other, and drawn eyes
where the skin ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.landmarks import Points

Pixels: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.float32]

CLOSED: Final = 0.14
"""Lips that are nearer than this, in widths of the mouth, are closed."""

NEAR, BENT = 0.16, 0.08
"""How far from where the mesh sees it the line of closed lips may be, in widths of the mouth, and how much
further off in single columns."""

DARKER: Final = 0.85
"""The line of closed lips has at most this part of their brightness."""

ENDS: Final = (0.36, 0.66)
"""Where the line of closed lips may end, in widths of the mouth from its middle."""

FLAT, SKIN = 0.5, 24.0
"""How much the skin differs at most, of 255, if it is drawn in one colour, and how much lips and eyes differ
from it at least."""

DARK, DEEP = 0.6, 0.25
"""The open mouth of a drawing has at most this part of the skin's brightness, and is at least so high, in its
own width."""

FULL: Final = 0.6
"""The least part of the rectangle around it that the open mouth or the eye of a drawing fills; an ellipse
fills more."""

SHUT, EDGE, BLUR = 0.35, 0.05, 2.0
"""Where its lips meet, in its height from above; how wide its edge is at most, in its width and, more, in
pixels."""

INKED, HALF = 0.7, 0.5
"""The least part of a drawn mouth's width where its line is seen; of the inside of an open one's height."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The frame of reference of a mouth or an eye: `origin` (2,) in the image; `along` and `down` (2,) are
    unit vectors."""

    origin: Points
    along: Points
    down: Points

    def of(self, points: Points) -> Points:
        """Points of the image (..., 2) in this frame."""
        found: Points = (points - self.origin) @ np.stack([self.along, self.down], axis=1)
        return found

    def seen(self, pixels: Pixels, across: Numbers, heights: Numbers) -> Numbers:
        """Returns the colours (..., 3) of the image at positions of this frame."""
        at = self.origin + across[..., None] * self.along + heights[..., None] * self.down
        columns = np.clip(at[..., 0].round().astype(int), 0, pixels.shape[1] - 1)
        rows = np.clip(at[..., 1].round().astype(int), 0, pixels.shape[0] - 1)
        found: Numbers = pixels[rows, columns].astype(np.float32)
        return found


@dataclass(frozen=True, slots=True)
class Line:
    """Heights over ascending positions."""

    at: Numbers
    heights: Numbers

    def over(self, positions: NDArray[np.floating[Any]]) -> Numbers:
        found: Numbers = np.interp(positions, self.at, self.heights).astype(np.float32)
        return found


@dataclass(frozen=True, slots=True)
class Hollow:
    """The open mouth of a drawing whose skin has one colour: it reaches from side to side (n, 2) in each of
    these rows (n,), in a frame of reference."""

    reference: Reference
    rows: Numbers
    sides: Numbers
    skin: Numbers

    def covered(self, pixels: Pixels) -> Pixels:
        """Returns a copy of the image (H, W, 3) with skin in its place."""
        places = np.stack(np.meshgrid(*map(np.arange, pixels.shape[1::-1])), axis=-1).astype(np.float32)
        across, down = np.moveaxis(self.reference.of(places), -1, 0)
        left, right = (np.interp(down, self.rows, side) for side in self.sides.T)
        edge = EDGE * float(np.ptp(self.sides)) + BLUR
        within = (across > left - edge) & (across < right + edge)
        within &= (down > self.rows[0] - edge) & (down < self.rows[-1] + edge)
        found = pixels.copy()
        found[within] = self.skin.round().astype(np.uint8)
        return found


@dataclass(frozen=True, slots=True)
class Slit:
    """A mouth or an eye: the lines of its upper and its lower edge, which meet at `left` and `right`, at the
    same distance from the origin. `parted`: the image shows it open. `marked`: the image shows more there
    than skin of one colour. `hollow`: what a drawing shows in the open mouth, to be covered."""

    reference: Reference
    upper: Line
    lower: Line
    left: float
    right: float
    parted: bool = True
    marked: bool = True
    hollow: Hollow | None = None

    @property
    def width(self) -> float:
        return self.right - self.left


def slit(points: Points, upper: tuple[int, ...], lower: tuple[int, ...]) -> Slit:
    """Returns the slit as the mesh sees it."""
    left, right = points[upper[0]], points[upper[-1]]
    along = (right - left) / max(float(np.linalg.norm(right - left)), 1e-3)
    reference = Reference((left + right) / 2, along, np.array([-along[1], along[0]], np.float32))
    lines = [_line(reference.of(points[list(edge)])) for edge in (upper, lower)]
    half = float(np.linalg.norm(right - left)) / 2
    return Slit(reference, lines[0], lines[1], -half, half)


def _line(points: Points) -> Line:
    order = np.argsort(points[:, 0])
    return Line(points[order, 0], points[order, 1])


def mouth_as_seen(mouth: Slit, pixels: Pixels) -> Slit:
    """Returns closed lips at the edges of the darkest line near where the mesh sees them, from one end of it
    to the other; in place of the open mouth of a drawing, lips that are closed. Another open mouth, and one
    without such a line, is returned as the mesh sees it; one where a drawing has nothing but skin is not
    `marked`."""
    if (hollow := _hollow(mouth, pixels)) is not None:
        return _shut(hollow)
    wide = mouth.width
    across = np.linspace(-0.7, 0.7, 57, dtype=np.float32) * wide
    middle: Numbers = ((mouth.upper.over(across) + mouth.lower.over(across)) / 2).astype(np.float32)
    inner = np.abs(across) < 0.36 * wide
    gap = float((mouth.lower.over(across) - mouth.upper.over(across))[inner].max())
    opened = gap > CLOSED * wide
    far = NEAR * wide + (gap / 2 if opened else 0)
    shifts = np.linspace(-far, far, 33, dtype=np.float32)
    bright = mouth.reference.seen(pixels, *np.broadcast_arrays(across, middle + shifts[:, None])).mean(axis=2)
    skin, lips = bright[shifts < -gap / 2], bright[np.abs(shifts) <= (gap / 2 if opened else far)]
    marked = not _is_bare(skin[:, inner], lips[:, inner], HALF if opened else 0.0)
    if opened:
        return replace(mouth, marked=marked)
    whole = bright[:, inner].mean(axis=1)
    darkest = int(whole.argmin())
    if whole[darkest] >= DARKER * np.median(whole):
        return replace(_lying(mouth, across, middle, 0.0, (-wide / 2, wide / 2)), marked=marked)
    followed = _followed(across / wide, shifts, bright, float(shifts[darkest]), inner)
    return _measured_line(mouth, pixels, across, (middle + followed).astype(np.float32))


def _hollow(mouth: Slit, pixels: Pixels) -> Hollow | None:
    """Returns the open mouth that a drawing has around where the mesh sees one, if it has."""
    at = np.linspace(-1, 1, 161, dtype=np.float32) * mouth.width
    seen = mouth.reference.seen(pixels, *np.broadcast_arrays(at, at[:, None]))
    skin: Numbers = np.median(seen, axis=(0, 1))
    dark = (np.abs(seen - skin).max(axis=2) > SKIN) & (seen.mean(axis=2) < DARK * skin.mean())
    middle = len(at) // 2
    if not dark[middle, middle] or _spread(seen.reshape(-1, 3)) > FLAT:
        return None
    top, bottom = _reach(dark[:, middle], at, 0.0)
    within = (at > top) & (at < bottom)
    sides = np.array([_reach(line, at, 0.0) for line in dark[within]], np.float32)
    left, right = float(sides[:, 0].min()), float(sides[:, 1].max())
    goes_on = at[0] in (left, top) or at[-1] in (right, bottom)
    full = float(np.diff(sides).mean()) / (right - left)
    if goes_on or bottom - top < DEEP * (right - left) or full < FULL:
        return None
    return Hollow(mouth.reference, at[within], sides, skin)


def _shut(hollow: Hollow) -> Slit:
    """Returns closed lips, as wide as the open mouth."""
    left, right = float(hollow.sides[:, 0].min()), float(hollow.sides[:, 1].max())
    old, down = hollow.reference, (1 - SHUT) * hollow.rows[0] + SHUT * hollow.rows[-1]
    reference = replace(old, origin=old.origin + (left + right) / 2 * old.along + down * old.down)
    half = (right - left) / 2
    line = Line(np.array([-half, half], np.float32), np.zeros(2, np.float32))
    return Slit(reference, line, line, -half, half, hollow=hollow)


def _followed(
    across: Numbers, shifts: Numbers, bright: Numbers, shift: float, inner: NDArray[np.bool_]
) -> Numbers:
    """Returns how far the line is from the middle in each column: a parabola through the darkest places."""
    wide = shifts[-1] / NEAR
    close = np.abs(shifts - shift) <= BENT * wide
    part, around = bright[close][:, inner], np.median(bright[:, inner], axis=0)
    darkness = np.clip(around - part.min(axis=0), 1e-3, None)
    dark = np.clip(around - part - 0.5 * darkness, 1e-6, None)
    middles = (shifts[close][:, None] * dark).sum(axis=0) / dark.sum(axis=0)
    terms = np.stack([np.ones_like(across), across, across**2])
    bend = np.linalg.lstsq((terms[:, inner] * darkness).T, middles * darkness, rcond=None)[0]
    found: Numbers = np.clip(bend @ terms, shift - BENT * wide, shift + BENT * wide).astype(np.float32)
    return found


def _measured_line(mouth: Slit, pixels: Pixels, across: Numbers, heights: Numbers) -> Slit:
    """Returns the slit of the dark line that lies at these heights: its ends and its thickness are seen."""
    wide = mouth.width
    beside = np.linspace(-0.1, 0.1, 41, dtype=np.float32) * wide
    bright = mouth.reference.seen(pixels, *np.broadcast_arrays(across, heights + beside[:, None])).mean(
        axis=2
    )
    around = np.median(bright, axis=0)
    darkness = around - bright[np.abs(beside) <= 0.03 * wide].min(axis=0)
    inner = np.abs(across) < 0.3 * wide
    dark = darkness > 0.4 * np.median(darkness[inner])
    ends = [_end(dark, across, side, wide) for side in (-1, 1)]
    thick = (bright[:, inner] < (around - 0.5 * darkness)[inner]).sum(axis=0)
    step = float(beside[1] - beside[0])
    return _lying(mouth, across, heights, min(float(np.median(thick)) * step, 0.1 * wide), (ends[0], ends[1]))


def _end(dark: NDArray[np.bool_], across: Numbers, side: int, wide: float) -> float:
    """Returns where the line ends at this side; where the mesh has the corner, if it ends nowhere near."""
    order = np.flatnonzero(side * across > ENDS[0] * wide)[::side]
    light = next((n for n in order if not dark[n]), None)
    if light is None or abs(across[light]) > ENDS[1] * wide:
        return side * wide / 2
    return float(across[light])


def _lying(mouth: Slit, across: Numbers, heights: Numbers, thick: float, ends: tuple[float, float]) -> Slit:
    """Returns closed lips with a line of this thickness, in a frame of reference in its middle."""
    middle, half = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    reference = replace(mouth.reference, origin=mouth.reference.origin + middle * mouth.reference.along)
    at = (across - middle).astype(np.float32)
    swell = thick / 2 * np.sqrt(np.clip(1 - np.square(at / half), 0, 1))
    lines = [Line(at, (heights + sign * swell).astype(np.float32)) for sign in (-1, 1)]
    return Slit(reference, lines[0], lines[1], -half, half, parted=False)


def eye_as_seen(eye: Slit, pixels: Pixels, to_brow: float) -> Slit | None:
    """Returns the eye of a drawing whose skin has one colour as the ellipse that is not skin; where there is
    nothing but skin, the eye is not `marked`. Returns None for a photo, and where what is not skin fills no
    ellipse: the eye is as the mesh sees it."""
    wide = eye.width
    at = np.linspace(-0.8, 0.8, 97, dtype=np.float32) * wide
    rows = at[at > -min(0.5 * wide, 0.75 * to_brow)]
    seen = eye.reference.seen(pixels, *np.broadcast_arrays(at, rows[:, None]))
    below = seen[rows > 0.45 * wide][:, np.abs(at) < 0.25 * wide].reshape(-1, 3)
    skin = np.median(below, axis=0)
    other = np.abs(seen - skin).max(axis=2) > SKIN
    close = other[np.abs(rows) < 0.35 * wide][:, np.abs(at) < 0.5 * wide]
    if _spread(below) > FLAT:
        return None
    if not close.any():
        return replace(eye, marked=False)
    right = at[np.abs(at) < 0.5 * wide][close.any(axis=0)].mean()
    down = rows[np.abs(rows) < 0.35 * wide][close.any(axis=1)].mean()
    top, bottom = _reach(other[:, np.abs(at - right).argmin()], rows, down)
    left, right = _reach(other[np.abs(rows - (top + bottom) / 2).argmin()], at, right)
    top, bottom = _reach(other[:, np.abs(at - (left + right) / 2).argmin()], rows, (top + bottom) / 2)
    sized = 0.1 * wide < right - left < 1.5 * wide and 0.05 * wide < bottom - top < 0.9 * wide
    if not sized or other[(rows > top) & (rows < bottom)][:, (at > left) & (at < right)].mean() < FULL:
        return None
    return _ellipse(eye, (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2)


def _is_bare(skin: Numbers, lips: Numbers, least: float) -> bool:
    """Returns whether the skin has one colour, and most columns of the lips have it, too: all of them but
    `least`."""
    inked = (np.abs(lips - np.median(skin)) > SKIN).mean(axis=0) > least
    return _spread(skin) <= FLAT and float(inked.mean()) < INKED


def _spread(values: Numbers) -> float:
    """Returns how much values differ: half of them by less, from the one in their middle."""
    return float(np.median(np.abs(values - np.median(values, axis=0))))


def _reach(mask: NDArray[np.bool_], at: Numbers, around: float) -> tuple[float, float]:
    """Returns the first and the last position of the part of the mask that is around this one."""
    middle = int(np.abs(at - around).argmin())
    outside = np.flatnonzero(~mask)
    before, after = outside[outside < middle], outside[outside > middle]
    first = int(before[-1]) if len(before) else 0
    last = int(after[0]) if len(after) else len(at) - 1
    return float(at[first]), float(at[last])


def _ellipse(eye: Slit, right: float, down: float, half: float, height: float) -> Slit:
    """Returns an eye in the shape of an ellipse, whose middle is so far from the middle of `eye`."""
    old = eye.reference
    reference = replace(old, origin=old.origin + right * old.along + down * old.down)
    at = np.linspace(-half, half, 65, dtype=np.float32)
    swell = height * np.sqrt(np.clip(1 - np.square(at / half), 0, 1)).astype(np.float32)
    return replace(
        eye, reference=reference, upper=Line(at, -swell), lower=Line(at, swell), left=-half, right=half
    )
