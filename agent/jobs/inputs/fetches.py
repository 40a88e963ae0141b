"""Serves the `fetch` frames of one attempt's handler. Each is a task, which ends with its answer.

    fetch (n, url, max_bytes, timeout_s) ── Inputs.fetch ── fetched (n, size, sha256, +descriptor)
                                                        └── fetch_failed (n, reason, error, retryable)

When the attempt ends or is cancelled, the tasks are cancelled and no answer is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from stoker.agent.interfaces import FetchedInput, InputRefused, InputRequest, Inputs
from stoker.agent.worker_frames import Fetch, Kept
from stoker.outbound.wait_limits import NOBODY, Waiter
from stoker.wire.messages import AttemptKey, Grant
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)

AT_ONCE = 32
"""The most fetches of one attempt at once: each may hold a descriptor of the agent."""


class NoInputs:
    """The `interfaces.Inputs` of an agent that fetches none."""

    async def fetch(self, request: InputRequest) -> FetchedInput:
        raise InputRefused("unreachable", "this node fetches no inputs")


class Fetches:
    """The fetches of one attempt. `private`: URLs may have private addresses. URLs in `own`, the platform's
    bucket, always may."""

    def __init__(
        self,
        key: AttemptKey,
        inputs: Inputs,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        send: Callable[[Frame], None],
        *,
        private: bool,
        own: Grant | None = None,
    ) -> None:
        self._key, self._inputs, self._spawn = key, inputs, spawn
        self._send, self._private = send, private
        self._own = None if own is None else f"{own.public_endpoint}/{own.bucket}/"
        self._whose = NOBODY if own is None else Waiter(own.account, own.key, own.endpoint)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, fetch: Fetch) -> None:
        n = fetch.n
        request = InputRequest(fetch.url, fetch.max_bytes, fetch.timeout_s, self._private, self._whose)
        if self._own is not None and request.url.startswith(self._own):
            request = replace(request, private=True, own=True)
        if len(self._tasks) >= AT_ONCE:
            why = f"a job has at most {AT_ONCE} fetches under way at once"
            self._send(failed(self._key, n, InputRefused("too_many", why)))
            return
        task = self._spawn(self._run(n, request), f"input {n} of {self._key.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _run(self, n: int, request: InputRequest) -> None:
        try:
            self._pass_on(n, await self._inputs.fetch(request))
        except InputRefused as refused:
            self._send(failed(self._key, n, refused))
        except OSError as error:  # no descriptor is left
            why = f"the input cannot be passed on by this node: {error.strerror or error}"
            self._send(failed(self._key, n, InputRefused("no_room", why, retryable=True)))
        except Exception as error:
            log.exception("job %s, attempt %d: fetching an input failed", self._key.job, self._key.attempt)
            self._send(
                failed(self._key, n, InputRefused("unreachable", f"the input was not fetched: {error!r}"))
            )

    def _pass_on(self, n: int, found: FetchedInput) -> None:
        """Raises OSError, and sends nothing, where no descriptor is left for it."""
        try:
            about = {"n": n, "size": found.size, "sha256": found.sha256}
            self._send(Frame("fetched", {**_about(self._key), **about}, fd=found.fd))
        finally:
            os.close(found.fd)


def failed(key: AttemptKey, n: int, refused: InputRefused) -> Frame:
    about = {"n": n, "reason": refused.reason, "error": str(refused), "retryable": refused.retryable}
    return Frame("fetch_failed", {**_about(key), **about})


def refuse_late(request: Fetch | Kept) -> Frame:
    """Returns the answer to a request of a job that is over."""
    return failed(request.key, request.n, InputRefused("over", "the job is over; nothing is fetched for it"))


def _about(key: AttemptKey) -> dict[str, object]:
    return {"job": key.job, "attempt": key.attempt}
