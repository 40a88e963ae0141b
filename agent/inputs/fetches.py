"""What the handler of one attempt has fetched: each `fetch` frame is a task, which ends with its answer.

    fetch (n, url, max_bytes, timeout_s) ── Inputs.fetch ── fetched (n, size, sha256, +descriptor)
                                                        └── fetch_failed (n, reason, error, retryable)

The attempt's end ends them, and so does its cancel: then nobody waits for an answer, and none is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from stoker.agent.seams import FetchedInput, InputRefused, Inputs, InputWish
from stoker.wire.messages import AttemptKey, Grant
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)

AT_ONCE = 32
"""Fetches of one attempt: each may hold a descriptor of the agent's."""


class NoInputs:
    """The `seams.Inputs` of an agent without any."""

    async def fetch(self, wish: InputWish) -> FetchedInput:
        raise InputRefused("unreachable", "this node fetches no inputs")


class Fetches:
    """`private`: URLs may lie at private addresses. Those in `own`, the platform's bucket, always may."""

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
        self._key = key
        self._inputs = inputs
        self._spawn = spawn
        self._send = send
        self._private = private
        self._own = None if own is None else f"{own.public_endpoint}/{own.bucket}/"
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, frame: Frame) -> None:
        """Raises KeyError, TypeError or ValueError for a frame that is none."""
        n, wish = frame.number("n"), _wish(frame, private=self._private)
        if self._own is not None and wish.url.startswith(self._own):
            wish = replace(wish, private=True)
        if len(self._tasks) >= AT_ONCE:
            told = f"a job has at most {AT_ONCE} fetches under way at once"
            self._send(failed(self._key, n, InputRefused("too_many", told)))
            return
        task = self._spawn(self._run(n, wish), f"input {n} of {self._key.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _run(self, n: int, wish: InputWish) -> None:
        try:
            found = await self._inputs.fetch(wish)
        except InputRefused as refused:
            self._send(failed(self._key, n, refused))
            return
        except Exception as error:
            log.exception("fetching an input of %s failed", self._key)
            self._send(
                failed(self._key, n, InputRefused("unreachable", f"the input was not fetched: {error!r}"))
            )
            return
        try:
            about = {"n": n, "size": found.size, "sha256": found.sha256}
            self._send(Frame("fetched", {**_about(self._key), **about}, fd=found.fd))
        finally:
            os.close(found.fd)


def failed(key: AttemptKey, n: int, refused: InputRefused) -> Frame:
    about = {"n": n, "reason": refused.reason, "error": str(refused), "retryable": refused.retryable}
    return Frame("fetch_failed", {**_about(key), **about})


def over(frame: Frame) -> Frame:
    """The answer to a `fetch` of a job that is no longer to have anything."""
    key = AttemptKey(frame.job, frame.attempt)
    return failed(key, frame.number("n"), InputRefused("over", "the job is over; nothing is fetched for it"))


def _wish(frame: Frame, *, private: bool) -> InputWish:
    url, most, patience = (frame.fields[name] for name in ("url", "max_bytes", "timeout_s"))
    if not isinstance(url, str) or not isinstance(most, int) or most < 0 or not 0 < float(patience) < 1e9:
        raise ValueError(f"a fetch of {most!r} bytes within {patience!r} s")
    return InputWish(url, most, float(patience), private)


def _about(key: AttemptKey) -> dict[str, object]:
    return {"job": key.job, "attempt": key.attempt}
