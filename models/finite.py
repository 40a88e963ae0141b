"""The check that what a network computed are numbers: latents and pixels that are not become a black picture,
which nobody must be billed for.

    a job's result is not finite ─> the job fails, another attempt may succeed
                                 └─ the second in a row: this worker is replaced, too
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stoker.worker import Job, RetryableError

if TYPE_CHECKING:
    import torch

IN_A_ROW = 2
"""After so many results in a row that are not finite, it is not the job: the worker is replaced."""


class NotFinite(ArithmeticError):
    """The error that a network computed infinite values, or none."""


def check(values: torch.Tensor, what: str) -> None:
    """Raises NotFinite if one of the values is infinite or not a number; `what` they are, for the message."""
    if not bool(values.isfinite().all()):
        raise NotFinite(f"the model computed {what} that are not finite numbers (NaN or infinity)")


class Results:
    """The results of a worker's jobs, as far as they are finite."""

    def __init__(self) -> None:
        self._broken = 0

    @contextmanager
    def of(self, job: Job) -> Iterator[None]:
        """Fails the job retryably if its result is not finite, and has the worker replaced if the results of
        several jobs in a row are not."""
        try:
            yield
        except NotFinite as error:
            self._broken += 1
            if self._broken >= IN_A_ROW:
                job.refresh_worker()
            raise RetryableError(f"{error}, so there is no output; another attempt may succeed") from error
        self._broken = 0
