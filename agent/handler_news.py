"""Reads what a worker's frames say about an attempt. A worker runs user code: nothing in a frame is believed.

Two ways to be wrong: BrokenPromise is the handler's doing and fails the attempt with a sentence; KeyError,
TypeError and ValueError mean that the process does not speak the protocol, and it is killed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from stoker.agent import outputs
from stoker.agent.input_fetches import over
from stoker.agent.redaction import hidden_in
from stoker.agent.seams import FileRefused
from stoker.agent.uploads import HandedFile
from stoker.agent.workers import Worker
from stoker.wire.messages import AttemptKey
from stoker.worker.frames import Frame, is_large_piece

ERROR_MAX = 32 * 1024
FILES_MAX = 1000
"""Open files of one attempt: more would use up the agent's descriptors."""


class BrokenPromise(Exception):
    """The handler did something that it may not; the text is a sentence for the caller."""


def chunk_of(
    frame: Frame, *, storable: bool, check: Callable[[int], object]
) -> tuple[int, bytes | HandedFile]:
    """The number of a piece of partial output that may pass; its text, or the open file that holds it."""
    if outputs.has_marks(frame.body):
        raise BrokenPromise("a File cannot be part of a partial output; put it in the final output")
    if is_large_piece(frame) and not storable:
        words = f"a partial output of {len(frame.body)} bytes needs an object store"
        raise BrokenPromise(f"{words}, and the job came with none")
    if frame.fd is None:
        return frame.number("n"), frame.body
    try:
        check(frame.fd)
    except FileRefused as refused:
        raise BrokenPromise(str(refused)) from None
    n = frame.number("n")
    return n, HandedFile(n, frame.fd, "chunk.json", "application/json")


def failure_of(frame: Frame, secrets: Iterable[str]) -> tuple[str, bool]:
    """The error text, which callers read, and whether the handler says that another try may help."""
    text = hidden_in(str(frame.fields["error"])[:ERROR_MAX], secrets)
    return text, frame.fields.get("retryable") is True


def metrics_of(frame: Frame) -> dict[str, int]:
    metrics: Any = frame.fields.get("metrics") or {}
    if not isinstance(metrics, dict):
        raise ValueError("metrics that are not an object")
    return {name: quantity for name, quantity in metrics.items() if _is_quantity(quantity)}


def _is_quantity(quantity: object) -> bool:
    if not isinstance(quantity, int) or isinstance(quantity, bool) or quantity < 0:
        raise ValueError(f"quantity {quantity!r}")
    return True


def file_of(frame: Frame, held: int, check: Callable[[int], object]) -> HandedFile:
    """The open file of a `file` frame, once `check` has let it pass; it is closed otherwise."""
    if frame.fd is None:
        raise ValueError("descriptor: there is none")
    try:
        if held >= FILES_MAX:
            raise BrokenPromise(f"a result has at most {FILES_MAX} files")
        n, name = frame.number("n"), str(frame.fields.get("name") or "file")
        media_type = str(frame.fields.get("media_type") or "application/octet-stream")
        check(frame.fd)
        return HandedFile(n, frame.fd, name, media_type)
    except FileRefused as refused:
        os.close(frame.fd)
        raise BrokenPromise(str(refused)) from None
    except BaseException:
        os.close(frame.fd)
        raise


def took(key: AttemptKey, n: int) -> Frame:
    """The answer to a large piece: its sender may go on."""
    return Frame("took", {"job": key.job, "attempt": key.attempt, "n": n})


def unwanted(worker: Worker, frame: Frame) -> None:
    """A frame that nobody wants; whoever sent it is not to wait for it."""
    if frame.fd is not None:
        os.close(frame.fd)
    if frame.kind == "fetch":
        worker.send(over(frame))
    if is_large_piece(frame):
        worker.send(took(AttemptKey(frame.job, frame.attempt), frame.number("n")))
