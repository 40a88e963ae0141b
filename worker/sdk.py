"""Declarations that a handler's author makes: `File`, `Device` and the `handler` mark. `Job` is in `job.job`.

A handler is any of

    def handler(job): ...                    returns the output
    async def handler(job): ...              the same; several jobs at once where the endpoint says so
    def handler(job): yield ...              each yield is a chunk of partial output
    async def handler(job): yield ...
    class Handler:                           loaded once, called for every job
        def setup(self, device): ...         optional; `device` is a `Device`
        def run(self, job): ...              any of the four
        def concurrency_modifier(self, current): ...     optional, see `handler`

A synchronous handler runs alone, on the main thread of its process. If its endpoint's `concurrency` is over
1, several jobs run at once, each on a thread of its own; jobs of an asynchronous handler are tasks of one
loop. A job sees the context variables as setup left them, and none of other jobs. Printed lines belong to the
process: the log of each job shows all lines that were printed while it ran.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from stoker.worker.errors import HandlerError

T = TypeVar("T")

OPTIONS = "__stoker_handler__"
"""The attribute under which `handler` leaves its options."""


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    aggregate: bool = False
    concurrency_modifier: Callable[[int], object] | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """The device of a worker; `setup(self, device)` is called with it.

        def setup(self, device):
            self.model = load().to(device.torch_device)

    `torch_device`: "cuda", or "cpu" where the worker has no GPU. `kind`: "gpu", "mig" (a slice of a GPU) or
    "cpu". `name`: the driver's name, "NVIDIA H200". `uuid`: the driver's id. `index`: its index on the
    host, not in this process, which sees only its own. Of several GPUs this is the first; torch sees them
    all.
    """

    uuid: str = "cpu"
    kind: str = "cpu"
    name: str = "CPU"
    index: int = 0

    @property
    def torch_device(self) -> str:
        """Returns the name to pass to torch: a worker sees only its own device, so a GPU is always plain
        "cuda".
        """
        return "cpu" if self.kind == "cpu" else "cuda"


class File:
    """A file in the job's scratch folder, for use anywhere in an output or an emitted value.

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
            raise HandlerError(f"{media_type!r} is not a media type; write it like image/png")
        if name is not None and not name:
            raise HandlerError("a File's name must not be empty")

    def __repr__(self) -> str:
        return f"File({self.path!r}, {self.media_type!r})"


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
    """Marks a handler and sets its options; a handler without options needs no mark.

    `aggregate=True`: the output of a generator is the list of all it yielded, and not the empty list.

    `concurrency_modifier(current)` returns how many jobs the worker takes at once from now on, and is called
    before the first job, with 1, and again whenever a job was taken and whenever one is about to end; the
    worker waits for its answer. The endpoint's `concurrency` is the upper bound; where that is 1 nothing is
    asked. An answer that is not a whole number from 1, or an exception, is logged and changes nothing. A
    lower number lets the jobs that run end.
    """

    def mark(marked: T) -> T:
        setattr(marked, OPTIONS, HandlerOptions(aggregate, concurrency_modifier))
        return marked

    return mark if target is None else mark(target)


def _is_media_type(text: str) -> bool:
    kind, slash, rest = text.partition("/")
    return bool(kind and slash and rest) and len(text) <= 200 and text.isascii() and text.isprintable()
