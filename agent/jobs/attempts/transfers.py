"""An attempt's transfers from and to the object store. Each returns an event for the attempt's machine.

`agent.jobs.uploads.payloads` moves the payloads; whether a transfer is tried again is decided by
`agent.jobs.attempts.attempt_machine`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from stoker.agent.alarm import loop_time
from stoker.agent.interfaces import Objects
from stoker.agent.jobs.attempts import events as ev
from stoker.agent.jobs.attempts.running_attempt import RunningAttempt
from stoker.agent.jobs.uploads.payloads import deliver, fetch
from stoker.agent.workers.lifecycle.contents import why_anew
from stoker.outbound.errors import OutboundError

log = logging.getLogger(__name__)

Move: TypeAlias = Callable[[RunningAttempt, Objects], Awaitable[ev.Event]]


class _NotReady(Exception):
    """The attempt cannot begin. The text is for the caller."""


class _NoSave(_NotReady):
    """The save that it goes on from cannot be had here; another node may have it."""


class _SaveGone(_NoSave):
    """The object of the save is missing, altered or refused. A store may refuse what is missing, and a job
    that begins anew is better than one that fails for a save."""


async def fetched(attempt: RunningAttempt, objects: Objects) -> ev.Event:
    """Fetches its input and its save, where they were too large for its Assign; a save that another content
    made is not for this worker. Meanwhile the caller's own bucket is tried,
    so that a bucket that refuses its files is found before the work."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_fetch_input(attempt, objects))
            group.create_task(_fetch_save(attempt, objects))
            group.create_task(_try_bucket(attempt, objects))
    except ExceptionGroup as failed:
        first = failed.exceptions[0]
        gone = isinstance(first, _SaveGone)
        return ev.FetchFailed(loop_time(), str(first), isinstance(first, _NoSave), gone)
    return ev.Fetched(loop_time())


async def _fetch_input(attempt: RunningAttempt, objects: Objects) -> None:
    ref, grant = attempt.assign.input_ref, attempt.assign.grant
    if ref is None or grant is None:
        return
    with _explained(attempt, "the input could not be fetched"):
        attempt.input = await fetch(ref, grant, objects)


_NOT_FETCHED = "the save could not be fetched"


async def _fetch_save(attempt: RunningAttempt, objects: Objects) -> None:
    saved, grant, worker = attempt.assign.saved, attempt.assign.grant, attempt.worker
    if saved is not None and (why := why_anew(saved.content, worker.name, worker.content)) is not None:
        raise _SaveGone(why)
    if saved is None or saved.ref is None or grant is None:
        return
    with _explained(attempt, _NOT_FETCHED, _NoSave):
        try:
            attempt.saved = await fetch(saved.ref, grant, objects)
        except OutboundError as error:  # of those that pass, `fetch` tries again
            raise _SaveGone(f"{_NOT_FETCHED}: {error}") from None


async def _try_bucket(attempt: RunningAttempt, objects: Objects) -> None:
    if (own := attempt.assign.files_grant) is not None:
        with _explained(attempt, "the bucket of s3Config cannot be used"):
            await objects.try_bucket(own)


@contextmanager
def _explained(attempt: RunningAttempt, what: str, kind: type[_NotReady] = _NotReady) -> Iterator[None]:
    """Raises `kind` for what fails inside."""
    try:
        yield
    except _SaveGone:
        raise
    except OutboundError as error:
        raise kind(f"{what}: {error}") from None
    except Exception as error:
        log.exception("job %s, attempt %d: %s", attempt.key.job, attempt.key.attempt, what)
        raise kind(f"{what}: {error!r}") from None


async def uploaded(attempt: RunningAttempt, objects: Objects) -> ev.Event:
    """Uploads the attempt's files and its output, and returns the event of success or failure."""
    grant = attempt.assign.grant
    assert grant is not None
    try:
        await deliver(attempt.payload, grant, objects, attempt.assign.files_grant)
    except OutboundError as error:
        reason = f"the result could not be uploaded: {error}"
        log.warning("job %s, attempt %d: %s", attempt.key.job, attempt.key.attempt, reason)
        return ev.UploadFailed(loop_time(), reason, error.retryable)
    except Exception as error:
        log.exception("job %s, attempt %d: uploading the result failed", attempt.key.job, attempt.key.attempt)
        return ev.UploadFailed(loop_time(), f"the result could not be uploaded: {error!r}", retryable=False)
    return ev.Uploaded(loop_time())
