"""The kept chunks of a job, which earlier attempts emitted and the save covers, read page by page.

    kept (first) ── waits ── kept_page (values as JSON, their sizes) ── the next page, until all are read
                         └── fetch_failed, cancel or the job's end ── raises

A handler that does not ask pays nothing: nothing is sent before the first value is wanted, and the next page
is asked for once this one is used up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from stoker.worker.errors import HandlerError, KeptUnavailable
from stoker.worker.frames import Frame, kept_values
from stoker.worker.job.inputs import has_loop

if TYPE_CHECKING:
    from stoker.worker.job.attempt import Attempt


class Kept:
    """The values of the chunks that the save covers, in order: `len(job.kept)`, `for value in job.kept`, or
    `async for` in an asynchronous handler. Empty where the job goes on from no save.

    Each reading begins at the first chunk. Reading raises KeptUnavailable where the chunks cannot be had; the
    length is known in any case.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def __len__(self) -> int:
        return self._attempt.kept

    def __iter__(self) -> Iterator[Any]:
        if has_loop():
            raise HandlerError("write `async for` here: reading job.kept would hold up the event loop")
        first = 0
        while first < len(self):
            answer = self._ask(first)
            self._attempt.wait(answer.done)
            values = _values(answer.result())
            first += len(values)
            yield from map(json.loads, values)

    async def __aiter__(self) -> AsyncIterator[Any]:
        if not self._attempt.receives_in_background:
            raise HandlerError("this handler is not asynchronous: write `for value in job.kept`")
        first = 0
        while first < len(self):
            values = _values(await asyncio.wrap_future(self._ask(first)))
            first += len(values)
            for value in values:
                yield json.loads(value)

    def _ask(self, first: int) -> Future[Frame]:
        if not self._attempt.gives_kept:
            raise KeptUnavailable(
                "the kept chunks cannot be had: this node, or its control, is of an earlier version"
            )
        answer: Future[Frame] = Future()
        self._attempt.request("kept", answer, first=first)
        return answer


def _values(frame: Frame) -> list[bytes]:
    """Returns the JSON texts of a page, at least one. Raises KeptUnavailable."""
    if frame.kind == "kept_page":
        return kept_values(frame)
    error, retryable = str(frame.fields["error"]), bool(frame.fields["retryable"])
    raise KeptUnavailable(f"the kept chunks cannot be had: {error}", retryable=retryable)
