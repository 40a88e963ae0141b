"""An attempt's transfers from and to the object store. Each returns an event for the attempt's machine.

`agent.uploads.payloads` moves the payloads; whether a transfer is tried again is decided by
`agent.attempts.attempt_machine`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from stoker.agent.alarm import loop_time
from stoker.agent.attempts import events as ev
from stoker.agent.attempts.running_attempt import RunningAttempt
from stoker.agent.interfaces import Objects
from stoker.agent.uploads.payloads import deliver, fetch
from stoker.outbound.errors import OutboundError

log = logging.getLogger(__name__)

Move: TypeAlias = Callable[[RunningAttempt, Objects], Awaitable[ev.Event]]


async def fetched(attempt: RunningAttempt, objects: Objects) -> ev.Event:
    """Its input, where that was too large for its Assign."""
    ref, grant = attempt.assign.input_ref, attempt.assign.grant
    assert ref is not None
    assert grant is not None
    try:
        attempt.input = await fetch(ref, grant, objects)
    except OutboundError as error:
        return ev.FetchFailed(loop_time(), f"the input could not be fetched: {error}")
    except Exception as error:
        log.exception("fetching the input of %s failed", attempt.key)
        return ev.FetchFailed(loop_time(), f"the input could not be fetched: {error!r}")
    return ev.Fetched(loop_time())


async def uploaded(attempt: RunningAttempt, objects: Objects) -> ev.Event:
    """Its files and its output."""
    grant = attempt.assign.grant
    assert grant is not None
    try:
        await deliver(attempt.payload, grant, objects, attempt.assign.files_grant)
    except OutboundError as error:
        reason = f"the result could not be uploaded: {error}"
        log.warning("job %s: %s", attempt.assign.job, reason)
        return ev.UploadFailed(loop_time(), reason, error.retryable)
    except Exception as error:
        log.exception("uploading the result of %s failed", attempt.key)
        return ev.UploadFailed(loop_time(), f"the result could not be uploaded: {error!r}", retryable=False)
    return ev.Uploaded(loop_time())
