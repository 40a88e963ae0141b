"""Checks the chunks and files of an attempt, and the descriptors that come with them.

A handler that does what it may not (a file elsewhere, a File in a chunk, too much) raises HandlerViolation,
which fails the attempt with a reason. `agent.worker_frames` refuses what no runtime sends; here
BrokenProtocol is raised only for what depends on the frames before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from stoker.agent import worker_frames
from stoker.agent.interfaces import FileRefused
from stoker.agent.jobs.inputs.fetches import refuse_late
from stoker.agent.jobs.uploads import outputs
from stoker.agent.jobs.uploads.payloads import HandedFile
from stoker.agent.worker_frames import BrokenProtocol
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.wire.messages import AttemptKey
from stoker.worker.frames import CHUNK_INLINE_MAX, SAVE_INLINE_MAX, SAVE_MAX, Frame

FILES_MAX = 1000
"""Open files of one attempt: more would use up the agent's descriptors."""

FILES_BYTES_MAX = 256 << 30
"""Of all files together. A sparse file of any size costs nothing to make, and takes long to read."""

SAVED_MAX = SAVE_MAX + (64 << 10)
"""Bytes of a save, with what the handler had measured."""

TEXT_MAX = 4 << 30
"""Bytes of a chunk, or of an output, that comes as a file."""


class HandlerViolation(Exception):
    """The handler did something that it may not; the text is for the caller."""


def is_large(chunk: worker_frames.Chunk | worker_frames.Save) -> bool:
    if isinstance(chunk, worker_frames.Save):
        return len(chunk.body) > SAVE_INLINE_MAX
    return len(chunk.body) > CHUNK_INLINE_MAX or chunk.fd is not None


def checked_chunk(
    chunk: worker_frames.Chunk, expected: int, *, storable: bool, check: Callable[[int], int]
) -> bytes | HandedFile:
    """Returns the body of the chunk, or the open file that holds the body. Raises BrokenProtocol or
    HandlerViolation; the caller still owns the descriptor then."""
    if chunk.n != expected:
        raise BrokenProtocol(f"chunk {chunk.n} of job {chunk.key.job} came instead of {expected}")
    if outputs.has_marks(chunk.body):
        raise HandlerViolation("a File cannot be part of a partial output; put it in the final output")
    if is_large(chunk) and not storable:
        raise HandlerViolation("a partial output over 1 MB needs an object store, and the job came with none")
    if chunk.fd is None:
        return chunk.body
    size = _checked(chunk.fd, check)
    if size > TEXT_MAX:
        raise HandlerViolation(f"a partial output of {size} bytes is over the limit of {TEXT_MAX}")
    return HandedFile(chunk.n, chunk.fd, "chunk.json", "application/json", size)


def check_save(save: worker_frames.Save, expected: int, chunks: range, *, storable: bool) -> None:
    """Checks a save of a handler. `chunks`: how many it may cover. Raises BrokenProtocol or
    HandlerViolation."""
    if save.n != expected:
        raise BrokenProtocol(f"save {save.n} of job {save.key.job} came instead of {expected}")
    if save.upto not in chunks:
        raise BrokenProtocol(f"a save of job {save.key.job} covers {save.upto} chunks, not one of {chunks}")
    if len(save.body) > SAVED_MAX:
        raise HandlerViolation(f"a save of {len(save.body)} bytes is over the limit of {SAVE_MAX}")
    if is_large(save) and not storable:
        raise HandlerViolation("a save over 48 KiB needs an object store, and the job came with none")


def checked_file(
    file: worker_frames.File, received: Mapping[int, HandedFile], check: Callable[[int], int]
) -> HandedFile:
    """Returns the open file, if `check` accepts it. Raises as `checked_chunk` does."""
    if file.n != len(received):
        raise BrokenProtocol(f"file {file.n} of job {file.key.job} came instead of {len(received)}")
    if file.n >= FILES_MAX:
        raise HandlerViolation(f"a result has at most {FILES_MAX} files")
    size = _checked(file.fd, check)
    if size + sum(other.size for other in received.values()) > FILES_BYTES_MAX:
        raise HandlerViolation(f"the files of a result have at most {FILES_BYTES_MAX >> 30} GiB together")
    return HandedFile(file.n, file.fd, file.name, file.media_type, size)


def _checked(fd: int, check: Callable[[int], int]) -> int:
    try:
        return check(fd)
    except FileRefused as refused:
        raise HandlerViolation(str(refused)) from None


def taken_frame(key: AttemptKey, n: int, *, save: bool = False) -> Frame:
    """Returns the answer to a large chunk or save: its sender may go on."""
    fields: dict[str, object] = {"job": key.job, "attempt": key.attempt, "n": n}
    return Frame("took", {**fields, "save": True} if save else fields)


def discard(worker: Worker, message: worker_frames.JobMessage | worker_frames.Retire) -> None:
    """Drops a message that does not count, and answers a sender that waits."""
    match message:
        case worker_frames.Fetch() | worker_frames.Kept():
            worker.send(refuse_late(message))
        case worker_frames.File(fd=fd):
            os.close(fd)
        case worker_frames.Chunk():
            if is_large(message):
                worker.send(taken_frame(message.key, message.n))
            if message.fd is not None:
                os.close(message.fd)
        case worker_frames.Save() if is_large(message):
            worker.send(taken_frame(message.key, message.n, save=True))
