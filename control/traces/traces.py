"""Traces of what control does, where the operator exports them: tells the spans of requests and of jobs.

A request goes on in its caller's trace, or begins a trace unless it only reads: polls without a `traceparent`
would drown the rest. A trace that its caller does not record is handed on and not exported.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, MutableMapping
from typing import Any

from msgspec import Struct

from stoker.control.rules.types import Changed, Claimed, NewJob
from stoker.control.traces import spans
from stoker.control.traces.spans import TraceSpan
from stoker.control.traces.traceparent import Traceparent, parse_traceparent

HEADER = b"traceparent"
_READS = ("GET", "HEAD", "OPTIONS")
FAILED_STATUS = 500


class TracedRequest(Struct, frozen=True):
    """A request that is being answered. `parent`: its caller's span, or ""."""

    own: Traceparent
    parent: str
    began: float


class Traces:
    """The traces of requests and jobs. `export` takes each span, and neither waits nor raises."""

    def __init__(self, export: Callable[[TraceSpan], None], clock: Callable[[], float]) -> None:
        self._export, self._clock = export, clock

    def begin(self, scope: MutableMapping[str, Any]) -> TracedRequest | None:
        """Begins the span of a request. Its header names this span from then on: jobs that it submits, and
        workers that it is passed on to, are below it."""
        given = next((value for name, value in scope["headers"] if name == HEADER), b"").decode("latin-1")
        parent = parse_traceparent(given)
        if parent is None and scope["method"] in _READS:
            return None
        trace = secrets.token_hex(16) if parent is None else parent.trace
        own = Traceparent(trace, secrets.token_hex(8), parent is None or parent.sampled)
        others = [(name, value) for name, value in scope["headers"] if name != HEADER]
        scope["headers"] = [*others, (HEADER, str(own).encode())]
        return TracedRequest(own, "" if parent is None else parent.span, self._clock())

    def answered(
        self, request: TracedRequest, scope: MutableMapping[str, Any], request_id: str, status: int | None
    ) -> None:
        """Tells the span of a request that was answered; `status` is None where it was broken off."""
        route = getattr(scope.get("route"), "path", "")
        attributes: dict[str, str | int] = {
            "http.request.method": scope["method"],
            "stoker.request": request_id,
            **({"http.route": route} if route else {}),
            **({} if status is None else {"http.response.status_code": status}),
        }
        self._tell(
            TraceSpan(
                f"{scope['method']} {route}".strip(),
                request.own,
                request.parent,
                request.began,
                self._clock(),
                attributes,
                served=True,
                failed=status is None or status >= FAILED_STATUS,
            )
        )

    def stored(self, new: NewJob) -> None:
        """Tells how long it took to store a job that has just been committed."""
        if (parent := parse_traceparent(new.traceparent)) is not None:
            own = parent.child("store", new.id)
            named = {"stoker.job": new.id, "stoker.endpoint": new.endpoint}
            self._tell(TraceSpan("store", own, parent.span, new.created_at, self._clock(), named))

    def changed(self, change: Changed) -> None:
        """Tells the spans of an attempt, and of a job, that a committed change ended."""
        now = self._clock()
        if change.traced is not None and (parent := parse_traceparent(change.traced.traceparent)) is not None:
            for span in spans.of_attempt(parent, change.job, change.endpoint, change.traced, now):
                self._tell(span)
        view = change.view
        if view is not None and (parent := parse_traceparent(view.traceparent)) is not None:
            self._tell(spans.of_job(parent, view, now))

    def handed_on(self, claimed: Claimed) -> str:
        """Returns the `traceparent` that the attempt's handler gets."""
        parent = parse_traceparent(claimed.traceparent)
        return "" if parent is None else str(spans.execute_span(parent, claimed.job, claimed.attempt))

    def _tell(self, span: TraceSpan) -> None:
        if span.own.sampled:
            self._export(span)
