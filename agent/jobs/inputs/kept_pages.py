"""Serves the `kept` frames of one attempt's handler. Each is a task, which ends with its answer.

    kept (n, first) ── control ── values ───────────────────── kept_page (n, sizes, body)
                               ├─ an object ── the store ──┘
                               └─ a refusal ──────────────────── fetch_failed (n, reason, error, retryable)

The handler asks for one page after the other, so no more than a page is here at a time. Where control or the
store is down, the task tries on: the attempt's time limit ends it. When the attempt ends or is cancelled, the
tasks are cancelled and no answer is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from stoker.agent.interfaces import InputRefused, Objects
from stoker.agent.jobs.inputs.fetches import failed
from stoker.agent.jobs.inputs.kept_requests import KeptRequests
from stoker.agent.jobs.uploads.payloads import fetch
from stoker.agent.worker_frames import BrokenProtocol, Kept
from stoker.outbound.errors import OutboundError
from stoker.wire.messages import AttemptKey, Grant, KeptPage, Ref
from stoker.worker.frames import BODY_MAX, Frame, kept_page

log = logging.getLogger(__name__)

AT_ONCE = 4
"""The most pages of one attempt under way at once; a handler that reads once needs one."""

AGAIN_FIRST_S, AGAIN_LONGEST_S = 0.5, 30.0
"""How long a refusal that may pass is waited for."""


class KeptPages:
    """The pages of kept chunks that one attempt reads. `upto`: how many chunks the save of the attempt
    covers."""

    def __init__(
        self,
        key: AttemptKey,
        upto: int,
        requests: KeptRequests,
        objects: Objects,
        grant: Grant | None,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        send: Callable[[Frame], None],
    ) -> None:
        self._key, self._upto, self._requests = key, upto, requests
        self._objects, self._grant, self._spawn = objects, grant, spawn
        self._send = send
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, ask: Kept) -> None:
        """Raises BrokenProtocol for a chunk that no save covers."""
        if ask.first >= self._upto:
            raise BrokenProtocol(f"it asked for kept chunk {ask.first} of {self._upto}")
        if len(self._tasks) >= AT_ONCE:
            self._refuse(ask.n, InputRefused("too_many", f"a job reads at most {AT_ONCE} pages at once"))
            return
        task = self._spawn(self._answer(ask), f"kept chunks of {self._key.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _answer(self, ask: Kept) -> None:
        about = {"job": self._key.job, "attempt": self._key.attempt, "n": ask.n}
        try:
            self._send(kept_page(about, await self._values(ask.first)))
        except InputRefused as refused:
            self._refuse(ask.n, refused)
        except OutboundError as error:
            self._refuse(ask.n, InputRefused("unreachable", str(error)))
        except OSError as error:  # no descriptor, or no memory, is left for the page
            why = f"they cannot be passed on by this node: {error.strerror or error}"
            self._refuse(ask.n, InputRefused("no_room", why, retryable=True))
        except Exception as error:
            log.exception(
                "job %s, attempt %d: kept chunks could not be given back", self._key.job, self._key.attempt
            )
            self._refuse(ask.n, InputRefused("unreachable", f"they were not read: {error!r}"))

    def _refuse(self, n: int, why: InputRefused) -> None:
        self._send(failed(self._key, n, why))

    async def _values(self, first: int) -> list[bytes]:
        """Returns the chunk `first` and some that follow. Raises InputRefused, or OutboundError."""
        page = await self._page(first)
        if page.ref is not None:
            return [await self._object(first, page.ref)]
        if not 0 < len(page.values) <= self._upto - first:
            raise InputRefused("bad_answer", f"control gave {len(page.values)} of {self._upto - first} back")
        return list(page.values)

    async def _page(self, first: int) -> KeptPage:
        wait_s = AGAIN_FIRST_S
        while (page := await self._requests.page(self._key, first, self._upto)).refusal:
            if not page.retryable:
                raise InputRefused("unreachable", page.refusal)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_LONGEST_S)
        return page

    async def _object(self, n: int, ref: Ref) -> bytes:
        if ref.size > BODY_MAX:
            raise InputRefused("too_large", f"chunk {n} has {ref.size} bytes; at most {BODY_MAX} come back")
        if self._grant is None:
            raise InputRefused("unreachable", f"chunk {n} is in an object store, and the job came with none")
        async with self._requests.objects:
            return await fetch(ref, self._grant, self._objects)
