"""An attempt's transfers from and to the object store. Each ends with an event for the attempt's machine.

What is moved, and how, is for `agent.uploads`; whether it is tried again, for `agent.attempt`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from stoker.agent import attempt_events as ev
from stoker.agent.held_attempt import Attempt
from stoker.agent.seams import Objects
from stoker.agent.uploads import deliver, fetch
from stoker.outbound.errors import OutboundError

log = logging.getLogger(__name__)

Move: TypeAlias = Callable[[Attempt, Objects], Awaitable[ev.Event]]


async def fetched(attempt: Attempt, objects: Objects) -> ev.Event:
    """Its input, where that was too large for its Assign."""
    ref, grant = attempt.assign.input_ref, attempt.assign.grant
    assert ref is not None
    assert grant is not None
    try:
        attempt.input = await fetch(ref, grant, objects)
    except OutboundError as error:
        return ev.FetchFailed(_now(), f"the input could not be fetched: {error}")
    except Exception as error:
        log.exception("fetching the input of %s failed", attempt.key)
        return ev.FetchFailed(_now(), f"the input could not be fetched: {error!r}")
    return ev.Fetched(_now())


async def uploaded(attempt: Attempt, objects: Objects) -> ev.Event:
    """Its files and its output."""
    grant = attempt.assign.grant
    assert grant is not None
    try:
        await deliver(attempt.parcel, grant, objects, attempt.assign.files_grant)
    except OutboundError as error:
        words = f"the result could not be uploaded: {error}"
        log.warning("job %s: %s", attempt.assign.job, words)
        return ev.UploadFailed(_now(), words, error.retryable)
    except Exception as error:
        log.exception("uploading the result of %s failed", attempt.key)
        return ev.UploadFailed(_now(), f"the result could not be uploaded: {error!r}", retryable=False)
    return ev.Uploaded(_now())


def _now() -> float:
    return asyncio.get_running_loop().time()
