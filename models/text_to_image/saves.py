"""Saves of image jobs that take long: the images that are finished, and the state of the one that is made.

    after a step ─> is the job long, and the last save long ago? (`due`, pure) ─> job.save
                    or is it asked to yield, with more than a moment left?

A later attempt of the same program on the same kind of device goes on, and its files have the same bytes.
Jobs whose images are made in batches with those of others do not save: the others would have to wait for the
saves, and their states are parts of one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stoker.models.interface import Step
from stoker.worker import Job

LONG_S: Final = 40.0
"""A job that is expected to take less does not save: with the first save its previews begin to come with the
saves only."""

EVERY_S: Final = 10.0
SHARE: Final = 0.01
"""The part of the time that saves may take."""

MOMENT_S: Final = 3.0
"""A job that is asked to yield and has less left ends."""

SAVE_MOST: Final = 40 << 20
"""The platform's limit, in bytes."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A job as an earlier attempt left it. `images` are the bytes of its finished files; `state` is that of
    the image after them, empty at its beginning."""

    seed: int
    images: tuple[bytes, ...] = ()
    state: bytes = b""


def packed(begun: Begun, maker: str) -> bytes:
    parts = (*begun.images, begun.state)
    head = {"maker": maker, "seed": begun.seed, "sizes": [len(part) for part in parts]}
    return json.dumps(head).encode() + b"\n" + b"".join(parts)


def unpacked(save: bytes | None, maker: str) -> Begun | None:
    """Returns where to go on; None where there is no save, or one that another `maker` made: another release
    of Stoker or of its libraries, for which the bytes may mean something else."""
    head, _, rest = (save or b"").partition(b"\n")
    found = json.loads(head or b"{}")
    if found.get("maker") != maker:
        return None
    parts, at = [], 0
    for size in found["sizes"]:
        parts.append(rest[at : at + size])
        at += size
    return Begun(found["seed"], tuple(parts[:-1]), parts[-1])


def due(*, step_s: float, made: int, left: int, since_s: float, cost_s: float, asked: bool) -> bool:
    """Decides whether to save after a step. `made` and `left`: the job's steps; `since_s`: the time since the
    last save, or since the begin; `cost_s`: what the last save took; `asked`: to yield."""
    if asked:
        return left * step_s > MOMENT_S
    return (made + left) * step_s > LONG_S and since_s >= max(EVERY_S, cost_s / SHARE)


class Saves:
    """The saves of one job of `of` images, each of as many steps."""

    def __init__(
        self,
        job: Job,
        maker: str,
        begun: Begun,
        of: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job, self._maker, self._of, self._clock = job, maker, of, clock
        self.seed, self.images = begun.seed, list(begun.images)
        self._counted, self._began = 0, 0.0
        self._saved_at, self._cost_s = clock(), 0.0

    def after(self, step: Step) -> None:
        """Saves, if it is time. Raises what `job.save` does."""
        now = self._clock()
        if not self._counted:  # the time before has the reading of the prompt, too
            self._began = now
        self._counted += 1
        if step.state is None or step.number == step.of or self._counted < 2:
            return
        left = step.of - step.number + step.of * (self._of - len(self.images) - 1)
        if due(
            step_s=(now - self._began) / (self._counted - 1),
            made=step.number + step.of * len(self.images),
            left=left,
            since_s=now - self._saved_at,
            cost_s=self._cost_s,
            asked=self._job.asked_to_yield,
        ):
            self._save(step.state(), now)

    def _save(self, state: bytes, now: float) -> None:
        save = packed(Begun(self.seed, tuple(self.images), state), self._maker)
        if len(save) <= SAVE_MOST:
            self._job.save(save)
        self._saved_at = self._clock()
        self._cost_s = self._saved_at - now
