"""The images of several jobs, which wait on threads of their own, made on one thread: alone or in batches.

    thread of a job ──make──> waiting ──next_batch──> the thread of batches ──> image, or an error
                       │                                  └ on_step of each job, after each step
                       └ looks every POLL_S whether its job was cancelled, and leaves

A job that is cancelled, or whose on_step raises, leaves its batch at once; the others go on, and the device
computes its share in vain until the batch ends. If none is left, the batch is stopped. If a batch fails, each
of its images is made again, alone: the one that is at fault fails, and its neighbours do not.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from stoker.models.interface import ImageParameters, OnStep, Step
from stoker.models.text_to_image.batching import rules
from stoker.models.text_to_image.batching.gain import Batching
from stoker.worker.between_jobs.device_cache import empty_cache

if TYPE_CHECKING:
    from PIL import Image

POLL_S: Final = 0.05


class _AllCancelled(Exception):
    """The exception raised to stop the pipeline when all images of a batch have ended."""


class _Ticket:
    """The ticket for an image that a job waits for. `made` gets the image and how many were made with it, or
    the job's error."""

    def __init__(self, parameters: ImageParameters, on_step: OnStep, *, alone: bool) -> None:
        self.parameters = parameters
        self.waiting = rules.Waiting(None if alone else rules.group_of(parameters), time.monotonic())
        self.made: Future[tuple[Image.Image, int]] = Future()
        self._on_step = on_step

    def finish(self, image: Image.Image, together: int) -> None:
        """Gives the job its image. Only the first end counts."""
        with contextlib.suppress(InvalidStateError):
            self.made.set_result((image, together))

    def end(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):
            self.made.set_exception(error)

    def step(self, step: Step) -> None:
        """Tells its job; ends it if that raises."""
        if not self.made.done():
            try:
                self._on_step(step)
            except BaseException as error:  # a cancel, or whatever the job's end makes of a progress
                self.end(error)


class Batches:
    """The images of one pipeline, made one batch after the other. Its thread ends with the process."""

    def __init__(self, pipeline: Any, batching: Batching) -> None:
        self.batching = batching
        self._pipeline = pipeline
        self._changed = threading.Condition()
        self._tickets: list[_Ticket] = []
        self._admitted: list[_Ticket] = []
        self._running = False
        self._thread = ThreadPoolExecutor(1, "batches")

    def slots(self) -> int:
        """Returns how many jobs the worker takes at once from now on."""
        with self._changed:
            groups = [ticket.waiting.group for ticket in self._admitted]
        return rules.slots(groups, self.batching.most_at, self.batching.largest)

    def make(
        self,
        parameters: ImageParameters,
        on_step: OnStep,
        raise_if_cancelled: Callable[[], None],
        *,
        alone: bool,
    ) -> tuple[Image.Image, int]:
        """Returns the image, and how many were made in its batch. `on_step` is called on another thread.
        Raises what `on_step` or `raise_if_cancelled` raises."""
        ticket = _Ticket(parameters, on_step, alone=alone)
        with self._changed:
            self._admitted.append(ticket)
            self._tickets.append(ticket)
            self._changed.notify()
            if not self._running:
                self._running = True
                self._thread.submit(self._run)
        try:
            while not concurrent.futures.wait([ticket.made], POLL_S).done:
                raise_if_cancelled()
            return ticket.made.result()
        except BaseException as error:
            ticket.end(error)
            raise
        finally:
            with self._changed:
                self._admitted.remove(ticket)

    def _run(self) -> None:
        """Makes batches until nothing waits."""
        try:
            while batch := self._next():
                self._make(batch)
        except BaseException as error:
            with self._changed:
                self._running = False
                for ticket in self._tickets:
                    ticket.end(error)
            raise

    def _next(self) -> list[_Ticket]:
        with self._changed:
            while True:
                self._tickets = [ticket for ticket in self._tickets if not ticket.made.done()]
                waiting = [ticket.waiting for ticket in self._tickets]
                now_s = time.monotonic()
                decision = rules.next_batch(waiting, now_s, self.batching.most_at)
                if isinstance(decision, rules.Begin):
                    found = [self._tickets[position] for position in decision.positions]
                    self._tickets = [ticket for ticket in self._tickets if ticket not in found]
                    return found
                if decision.until_s is None:
                    self._running = False
                    return []
                self._changed.wait(decision.until_s - now_s)

    def _make(self, batch: Sequence[_Ticket]) -> None:
        def on_step(number: int, step: Step) -> None:
            batch[number].step(step)
            if all(ticket.made.done() for ticket in batch):
                raise _AllCancelled

        try:
            images = self._images([ticket.parameters for ticket in batch], on_step)
        except _AllCancelled:
            return
        except BaseException as error:  # the library's; SystemExit too ends no more than the job
            self._failed(batch, error)
            return
        for ticket, image in zip(batch, images, strict=True):
            ticket.finish(image, len(batch))

    def _images(
        self, parameters: Sequence[ImageParameters], on_step: Callable[[int, Step], None]
    ) -> list[Image.Image]:
        if len(parameters) > 1:
            images: list[Image.Image] = self._pipeline.generate_batch(parameters, on_step)
            return images
        return [self._pipeline.generate(parameters[0], lambda step: on_step(0, step))]

    def _failed(self, batch: Sequence[_Ticket], error: BaseException) -> None:
        if len(batch) == 1:
            batch[0].end(error)
            return
        empty_cache(error)
        for ticket in batch:
            if not ticket.made.done():
                self._make([ticket])
