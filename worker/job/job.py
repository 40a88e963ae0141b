"""The job as its handler sees it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.worker.job.attempt import Attempt
    from stoker.worker.job.inputs import InputFile
    from stoker.worker.job.kept import Kept
    from stoker.worker.sdk import File


@dataclass(slots=True, eq=False, repr=False)
class Job:
    """A single attempt at one job, as its handler sees it.

    `input` is the caller's input as plain JSON values. `attempt` counts from 1. Files belong below
    `scratch`, which is removed afterwards.
    """

    _attempt: Attempt
    input: Any

    @property
    def id(self) -> str:
        return self._attempt.job

    @property
    def attempt(self) -> int:
        return self._attempt.number

    @property
    def scratch(self) -> Path:
        """The attempt's own folder, made when it is first used."""
        return Path(self._attempt.scratch)

    @property
    def s3_config(self) -> dict[str, str] | None:
        """The bucket that the caller brought along, as it was submitted: `accessId`, `accessSecret`,
        `bucketName`, `endpointUrl`, and `objectPath` where there is one. Files of the output go there in any
        case. The secret is hidden in logs and errors; keep it out of outputs.
        """
        return self._attempt.s3_config

    @property
    def traceparent(self) -> str | None:
        """The W3C `traceparent` of this attempt: the parent of spans that the handler makes, and a header for
        services that it calls. None where the job's caller sent none and nothing is traced.
        """
        return self._attempt.traceparent

    def progress(self, value: object) -> None:
        """Reports progress: any JSON value. The last value is kept. Waits while the platform is slow."""
        self._attempt.progress(value)

    def emit(self, value: object) -> None:
        """Sends a chunk of partial output: any JSON value without Files. Chunks keep their order.

        A chunk over 1 MB (64 MiB at most) is uploaded; while too much waits for that, this call waits, too.
        """
        self._attempt.emit(value)

    def save(self, state: bytes | File, *, upto: int | None = None) -> None:
        """Saves what a later attempt needs to go on from here, should this one be lost: it finds these bytes
        as `saved`. A save replaces the one before it; one over 40 MiB is refused.

        The chunks so far are kept with it, or only the first `upto`, counted from the beginning of the job.
        Once a job has saved, its chunks reach readers with the save that covers them, or with the job's end:
        so no reader sees one twice. An attempt that has saved something new does not count as failed.

        Where the job is asked to yield, this raises Yielded once the state is saved: let it pass. The job
        goes back to the queue, uncounted, and its next attempt goes on from here.
        """
        self._attempt.save(state, upto)

    @property
    def asked_to_yield(self) -> bool:
        """Returns whether the job is to give up its place: its host leaves, or a more urgent job needs it.
        The next `save` ends the attempt then, so a job that saves seldom may save now. Cheap."""
        return self._attempt.is_asked_to_yield()

    @property
    def saved(self) -> bytes | None:
        """The bytes that an earlier attempt saved last; None where there is nothing to go on from."""
        return self._attempt.saved

    @property
    def kept(self) -> Kept:
        """The values of the chunks that the save covers, read lazily: what earlier attempts emitted need not
        be saved once more. Empty where there is nothing to go on from."""
        from stoker.worker.job.kept import Kept  # it imports asyncio

        return Kept(self._attempt)

    @property
    def cancelled(self) -> bool:
        """Returns whether the job was cancelled. Cheap: ask between steps, and stop soon when it is so."""
        return self._attempt.is_cancelled()

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled if the job was cancelled."""
        self._attempt.raise_if_cancelled()

    def fetch(
        self,
        url: str,
        *,
        max_bytes: int = 100 << 20,
        media_types: Collection[str] = (),
        timeout_s: float = 60.0,
    ) -> InputFile:
        """Fetches an http, https or data: URL into a file below `scratch`, and returns the file. Waits
        for it.

        The platform fetches it: no private address, a redirect is checked like the first URL, nothing over
        `max_bytes`, nothing after `timeout_s`. `media_types`, such as `("image/*", "audio/wav")`, are
        compared with what the bytes look like. Raises InputRefused, whose text may be shown to the caller:

            except InputRefused as error:
                raise HandlerError(f"Invalid audio URL: {error}", retryable=error.retryable) from None
        """
        from stoker.worker.job import inputs  # it imports asyncio

        return inputs.fetch(self._attempt, inputs.fetch_request(url, max_bytes, media_types, timeout_s))

    async def fetch_async(
        self,
        url: str,
        *,
        max_bytes: int = 100 << 20,
        media_types: Collection[str] = (),
        timeout_s: float = 60.0,
    ) -> InputFile:
        """Fetches a URL as `fetch` does, for an asynchronous handler, whose other jobs go on meanwhile."""
        from stoker.worker.job import inputs

        return await inputs.fetch_async(
            self._attempt, inputs.fetch_request(url, max_bytes, media_types, timeout_s)
        )

    def measure(self, metric: str, quantity: int) -> None:
        """Counts something that is paid for, such as output pixels. Quantities of one metric add up."""
        self._attempt.measure(metric, quantity)

    def refresh_worker(self) -> None:
        """Asks for a fresh worker: this worker takes no more jobs and is replaced once the jobs it runs have
        ended.

        An output that is an object with `"refresh_worker": true` does the same; callers do not see it.
        """
        self._attempt.refresh_worker()
