"""Every error of the handler's side, and the functions that turn them into text for the wire.

    WorkerError
    ├── RegistrationError     the handler cannot be loaded or has the wrong shape; found before any job
    ├── FitnessError          one of the handler's own fitness checks failed; found before any job
    └── HandlerError          raise it: the job fails with exactly this message   (retryable=False)
        ├── RetryableError    the same, and the platform may try the job again    (retryable=True)
        ├── OutputError       an output, chunk or progress value cannot be written as JSON
        ├── FileRefused       a File that is not a regular file of this attempt's scratch folder
        ├── InputRefused      a URL input cannot be fetched; its `reason` is a word for why
        ├── KeptUnavailable   the chunks that a save covers cannot be had
        └── JobOver           something was sent for a job that has already ended

    Yielded (BaseException)   raised by `job.save` where the job was asked to yield: its state is saved
    Cancelled (BaseException) raised by `job.raise_if_cancelled()`; an `except Exception` does not swallow it

Any other exception of a handler fails the job too, with its type, its message and its traceback.
"""

from __future__ import annotations

import importlib
import os
import traceback
from types import TracebackType

ERROR_MAX = 16 * 1024
"""Bytes of an error text. As JSON it is at most three times as long, which a frame's header holds."""

_RUNTIME = (os.path.dirname(__file__) + "/", os.path.dirname(importlib.__file__) + "/", "<frozen ")
_CUT = "\n…\n"
_CONTROLS = {code: "\ufffd" for code in (*range(32), 127) if chr(code) not in "\n\t"}


class WorkerError(Exception):
    """The base of all errors on the handler's side of the socket."""


class RegistrationError(WorkerError):
    """The handler cannot be loaded, or it is not something that takes one job."""


class FitnessError(WorkerError):
    """A fitness check of the handler's failed: no job can run here."""


class HandlerError(WorkerError):
    """A failure that the handler explains itself: callers see this message and nothing else."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class RetryableError(HandlerError):
    """A failure that may pass: the platform may run the job again, as often as the endpoint allows."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class OutputError(HandlerError):
    """A value that the handler returned, emitted or reported cannot be written as JSON."""


class FileRefused(HandlerError):
    """A File may not be handed over."""


class InputRefused(HandlerError):
    """A URL cannot be fetched. `reason`: scheme, malformed, private_address, redirect, too_large,
    too_slow, wrong_type, not_found, http_status, unreachable, bad_answer, too_many, no_room or over."""

    def __init__(self, message: str, reason: str, *, retryable: bool = False) -> None:
        super().__init__(message, retryable=retryable)
        self.reason = reason


class KeptUnavailable(HandlerError):
    """The values of the chunks that a save covers cannot be had. A handler that can go on without them
    catches this; another one should begin again, or let the job fail with this text."""


class JobOver(HandlerError):
    """The job has ended; nothing more can be sent for it."""


class Cancelled(BaseException):
    """The job was cancelled. Let it pass: it ends the handler, as the caller or the platform requested."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"cancelled: {self.reason}" if self.reason else "cancelled"


class Yielded(BaseException):
    """The job saved its state and gives up its place, as it was asked to. Let it pass: it ends the handler,
    and a later attempt goes on from the save."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"yielded: {self.reason}" if self.reason else "yielded"


def is_yield(error: BaseException) -> bool:
    """Returns whether the error is Yielded, or a group of nothing else, as a task group raises it."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_yield, error.exceptions))
    return isinstance(error, Yielded)


def describe(error: BaseException) -> str:
    """Returns the text that a `failed` frame carries: at most ERROR_MAX bytes of clean Unicode."""
    if isinstance(error, (WorkerError, Cancelled, Yielded)):
        return clean(str(error)) or type(error).__name__
    headline = f"{type(error).__name__}: {_message(error)}"
    return clean(f"{headline}\n{_traceback(error)}")


def is_retryable(error: BaseException) -> bool:
    return isinstance(error, HandlerError) and error.retryable


def clean(text: str, limit: int = ERROR_MAX) -> str:
    """Returns a text that any JSON parser and any database column takes: no lone surrogates, no control
    characters.

    A text that is too long loses its middle: the message comes first, and the innermost call of a traceback
    last.
    """
    data = text.translate(_CONTROLS).encode("utf-8", "replace")
    if len(data) > limit:
        half = (limit - len(_CUT.encode())) // 2
        data = data[:half] + _CUT.encode() + data[-half:]
    return data.decode("utf-8", "ignore")


def _message(error: BaseException) -> str:
    """Returns str(error), or a placeholder if the exception's own __str__ fails."""
    if isinstance(error, SystemExit):
        return f"the handler called sys.exit({error.code!r})"
    try:
        return str(error)
    except Exception:  # a handler's exception class may be broken in any way
        return "(its message cannot be shown)"


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, _from_user_code(error.__traceback__))
    except Exception:  # as above: formatting calls the exception's own code
        lines = traceback.format_tb(error.__traceback__)
    return "".join(lines).rstrip()


def _from_user_code(trace: TracebackType | None) -> TracebackType | None:
    """Returns the traceback without the frames of this folder and of the import system above the handler."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_RUNTIME):
        trace = trace.tb_next
    return trace
