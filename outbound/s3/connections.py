"""Finds out how a bucket is reached: in which style, at which host, and signed for which region.

    the style that the store accepted before ── else each style, for the region of the settings or of the host
    refused, and the store names a region    ── there, and at the store's host of that region

What was accepted is remembered, also for stores with other credentials, and URLs are signed accordingly.
botocore is imported with the first call (`objects`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from stoker.outbound.errors import ObjectMissing, ObjectStoreError, ObjectStoreRefused, WrongRegion
from stoker.outbound.s3.regions import region_of
from stoker.outbound.s3.styles import Found, Style, in_region, public_style, styles

T = TypeVar("T")

_STYLES_MAX = 1_024
"""Buckets whose style is remembered."""
_TRIES_MOST = 8
"""Styles that one call is tried in: a store may name new regions without end."""


class Connections:
    """Thread-safe. `open_client` opens the client of a style, when it is first needed. An empty `region` is
    read from the endpoint."""

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        region: str,
        open_client: Callable[[Style], Any],
        found: Found | None = None,
    ) -> None:
        self._bucket = endpoint, bucket
        self._region = region or region_of(endpoint)
        self._open_client = open_client
        self._lock = threading.Lock()
        self._clients: dict[Style, Any] = {}
        self._found: Found = {} if found is None else found

    @property
    def known(self) -> bool:
        """Returns whether a call has found out how the bucket is reached."""
        return self._bucket in self._found

    @property
    def first(self) -> Style:
        """Returns the style that was accepted, or that is tried first."""
        return self._styles()[0]

    @property
    def open_styles(self) -> tuple[Style, ...]:
        return tuple(self._clients)

    def public(self, endpoint: str) -> Style:
        """Returns the style of callers' URLs. They reach the store at `endpoint`, if that is not empty."""
        own = self.first
        if endpoint in ("", self._bucket[0]):
            return own
        return replace(public_style(own, endpoint, self._bucket[1]), region=own.region)

    def client(self, style: Style) -> Any:
        with self._lock:
            client = self._clients.get(style)
            if client is None:
                with self.explained("opening the object store"):
                    client = self._clients[style] = self._open_client(style)
            return client

    def call(self, doing: str, call: Callable[[Any], T]) -> T:
        """Calls in the style that the server has accepted before, else in each style until one is accepted,
        and in those that its refusals point to. If all are refused, raises the error of the first style: the
        others are guesses, unless the server pointed to them."""
        refused: ObjectStoreError | None = None
        trying, tried, learnt = list(self._styles()), set[Style](), set[Style]()
        while trying and len(tried) < _TRIES_MOST:
            style = trying.pop(0)
            tried.add(style)
            try:
                with self.explained(doing, style.region):
                    done = call(self.client(style))
            except (ObjectStoreRefused, ObjectMissing) as error:
                if refused is None or (style in learnt and isinstance(refused, WrongRegion)):
                    refused = error
                if isinstance(error, WrongRegion) and error.named:
                    new = [one for one in in_region(style, error.named) if one not in tried]
                    learnt |= set(new)
                    trying = [*new, *(one for one in trying if one not in new)]
            except ObjectStoreError as error:
                raise error if refused is None or style in learnt else refused from None
            else:
                self._remember(style)
                return done
        assert refused is not None
        raise refused

    @contextmanager
    def explained(self, doing: str, region: str = "") -> Iterator[None]:
        """Raises what fails inside as one of `outbound.errors`."""
        from stoker.outbound.s3.answers import FAILURES, explain

        try:
            yield
        except FAILURES as error:
            raise explain(error, doing, *self._bucket, region) from None

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _styles(self) -> tuple[Style, ...]:
        found = self._found.get(self._bucket)
        if found is not None:
            return (found,)
        return tuple(replace(style, region=self._region) for style in styles(*self._bucket))

    def _remember(self, style: Style) -> None:
        with self._lock:
            if len(self._found) >= _STYLES_MAX and not self.known:
                self._found.pop(next(iter(self._found)))
            self._found[self._bucket] = style
