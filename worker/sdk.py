"""What a handler's author sees: `Job`, `File`, `Device` and the `handler` mark.

A handler is any of

    def handler(job): ...                    returns the output
    async def handler(job): ...              the same; several jobs at once where the endpoint says so
    def handler(job): yield ...              each yield is a chunk of partial output
    async def handler(job): yield ...
    class Handler:                           loaded once, called for every job
        def setup(self, device): ...         optional
        def run(self, job): ...              any of the four
        def concurrency_modifier(self, current): ...     optional, see `handler`

A synchronous handler runs on the main thread of its process and has it to itself. Where its endpoint says
`concurrency` over 1, several jobs run at once, each on a thread of its own; jobs of an asynchronous handler
are tasks of one loop. A job sees the context variables as setup left them, and none of its neighbours'.
What is printed belongs to the process: the log of each job shows all that was printed in its time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from stoker.worker.errors import HandlerError

if TYPE_CHECKING:
    from stoker.worker.attempt import Attempt
    from stoker.worker.inputs import InputFile

T = TypeVar("T")

OPTIONS = "__stoker_handler__"
"""The attribute under which `handler` leaves its options."""


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    aggregate: bool = False
    concurrency_modifier: Callable[[int], object] | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """The device this worker was given. `index` is its place in the host, not in this process."""

    uuid: str = "cpu"
    kind: str = "cpu"
    name: str = "CPU"
    index: int = 0

    @property
    def torch_device(self) -> str:
        """What to pass to torch: a worker sees only its own device, so a GPU is always plain "cuda"."""
        return "cpu" if self.kind == "cpu" else "cuda"


class File:
    """A file in the job's scratch folder, to stand anywhere in an output or an emitted value.

    The platform uploads it and puts a URL in its place. Write it first: it is opened when the value is sent.
    """

    __slots__ = ("media_type", "name", "path")

    def __init__(
        self, path: str | os.PathLike[str], media_type: str | None = None, *, name: str | None = None
    ) -> None:
        self.path = os.fsdecode(path)
        self.media_type = media_type
        self.name = name
        if media_type is not None and not _is_media_type(media_type):
            raise HandlerError(f"{media_type!r} is no media type; write it like image/png")
        if name is not None and not name:
            raise HandlerError("a File's name must not be empty")

    def __repr__(self) -> str:
        return f"File({self.path!r}, {self.media_type!r})"


class Job:
    """One attempt at one job, as its handler sees it.

    `input` is the caller's input as plain JSON values. `attempt` counts from 1. Files belong below
    `scratch`, which is removed afterwards.
    """

    __slots__ = ("_attempt", "attempt", "id", "input")

    def __init__(self, attempt: Attempt, input: Any) -> None:  # noqa: A002  # the word of the domain
        self._attempt = attempt
        self.id = attempt.job
        self.attempt = attempt.number
        self.input = input

    @property
    def scratch(self) -> Path:
        """This attempt's own folder."""
        return Path(self._attempt.scratch)

    def progress(self, value: object) -> None:
        """Say how far the job is: any JSON value. The last one is kept. Waits while the platform is slow."""
        self._attempt.progress(value)

    def emit(self, value: object) -> None:
        """Send a chunk of partial output: any JSON value without Files. Chunks keep their order.

        One over 1 MB (64 MiB at most) is uploaded; while too much waits for that, this call waits, too.
        """
        self._attempt.emit(value)

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled. Cheap: ask between steps, and stop soon when it is so."""
        return self._attempt.is_cancelled()

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the job was cancelled."""
        self._attempt.raise_if_cancelled()

    def fetch(
        self,
        url: str,
        *,
        max_bytes: int = 100 << 20,
        media_types: Collection[str] = (),
        timeout_s: float = 60.0,
    ) -> InputFile:
        """What lies at an http, https or data: URL, as a file below `scratch`. Waits for it.

        The platform fetches it: no private address, a redirect is checked like the first URL, nothing over
        `max_bytes`, nothing after `timeout_s`. `media_types`, such as `("image/*", "audio/wav")`, are
        compared with what the bytes look like. Raises InputRefused, whose text may be shown to the caller:

            except InputRefused as error:
                raise HandlerError(f"Invalid audio URL: {error}", retryable=error.retryable) from None
        """
        from stoker.worker import inputs

        return inputs.fetch(self._attempt, inputs.wish(url, max_bytes, media_types, timeout_s))

    async def fetch_async(
        self,
        url: str,
        *,
        max_bytes: int = 100 << 20,
        media_types: Collection[str] = (),
        timeout_s: float = 60.0,
    ) -> InputFile:
        """The same for an asynchronous handler, whose other jobs go on meanwhile."""
        from stoker.worker import inputs

        return await inputs.fetch_async(self._attempt, inputs.wish(url, max_bytes, media_types, timeout_s))

    def measure(self, metric: str, quantity: int) -> None:
        """Count something that is paid for, such as output pixels. Quantities of one metric add up."""
        self._attempt.measure(metric, quantity)

    def refresh_worker(self) -> None:
        """Ask for a fresh worker: this one takes no more jobs and is replaced once those it runs have ended.

        An output that is an object with `"refresh_worker": true` says the same; the caller does not see it.
        """
        self._attempt.refresh_worker()


@overload
def handler(target: T, /) -> T: ...
@overload
def handler(
    *, aggregate: bool = False, concurrency_modifier: Callable[[int], object] | None = None
) -> Callable[[T], T]: ...
def handler(
    target: Any = None,
    /,
    *,
    aggregate: bool = False,
    concurrency_modifier: Callable[[int], object] | None = None,
) -> Any:
    """Mark a handler and set its options; a handler without any needs no mark.

    `aggregate=True`: the output of a generator is the list of all it yielded, and not the empty list.

    `concurrency_modifier(current)` returns how many jobs the worker takes at once from now on. It is asked
    before the first job, with 1, and again whenever a job was taken and whenever one is about to end; the
    worker waits for its answer. The endpoint's `concurrency` is the upper bound; where that is 1 nothing is
    asked. An answer that is no whole number from 1, or an exception, is logged and changes nothing. A lower
    number lets the jobs that run end.
    """

    def mark(marked: T) -> T:
        setattr(marked, OPTIONS, HandlerOptions(aggregate, concurrency_modifier))
        return marked

    return mark if target is None else mark(target)


def _is_media_type(text: str) -> bool:
    kind, slash, rest = text.partition("/")
    return bool(kind and slash and rest) and len(text) <= 200 and text.isascii() and text.isprintable()
