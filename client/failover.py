"""Several addresses of one service: of a control and its standbys. The address that answered last is called,
and the others in turn if nothing listens there.

Only a request that was not sent goes to the next address. What breaks later may have been done: the client
repeats it where that is safe. The repetition, as any further request, begins at the next address, since a
control that stands still accepts connections and answers none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import httpx2

UNSENT = httpx2.ConnectError, httpx2.ConnectTimeout


class Addresses:
    """The addresses in the order in which they are tried. Requests are built for the first one."""

    def __init__(self, bases: Sequence[str]) -> None:
        self._bases = [httpx2.URL(base) for base in bases]
        self._answers = 0
        """The index of the address that answered last."""

    def tries(self, request: httpx2.Request) -> Iterator[tuple[int, httpx2.Request]]:
        """Yields the index of each address and the request for it. Whoever stops here has an answer, and the
        next request begins at that address."""
        known = self._answers
        for turn in range(len(self._bases)):
            self._answers = index = (known + turn) % len(self._bases)
            yield index, self._at(request, self._bases[index])
        self._answers = known

    def doubt(self, index: int) -> None:
        """Lets the next request begin after this address, where it would begin at it: of many requests that
        wait there at once, the first moves on, and no other moves back."""
        if self._answers == index:
            self._answers = (index + 1) % len(self._bases)

    def _at(self, request: httpx2.Request, base: httpx2.URL) -> httpx2.Request:
        first = self._bases[0]
        if base == first:
            return request
        path = base.raw_path + request.url.raw_path.removeprefix(first.raw_path)
        url = request.url.copy_with(scheme=base.scheme, netloc=base.netloc, raw_path=path)
        headers = request.headers.copy()
        headers["Host"] = base.netloc.decode("ascii")
        return httpx2.Request(
            request.method, url, headers=headers, stream=request.stream, extensions=request.extensions
        )


class Failover(httpx2.BaseTransport):
    """A transport that sends each request to the first of several addresses which can be connected to."""

    def __init__(self, bases: Sequence[str], inner: httpx2.BaseTransport) -> None:
        self._addresses, self._inner = Addresses(bases), inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        failed: Exception | None = None
        for index, one in self._addresses.tries(request):
            try:
                return self._inner.handle_request(one)
            except UNSENT as error:
                failed = failed or error
            except httpx2.TransportError:
                self._addresses.doubt(index)
                raise
        assert failed is not None
        raise failed

    def close(self) -> None:
        self._inner.close()


class AsyncFailover(httpx2.AsyncBaseTransport):
    """The same for asyncio."""

    def __init__(self, bases: Sequence[str], inner: httpx2.AsyncBaseTransport) -> None:
        self._addresses, self._inner = Addresses(bases), inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        failed: Exception | None = None
        for index, one in self._addresses.tries(request):
            try:
                return await self._inner.handle_async_request(one)
            except UNSENT as error:
                failed = failed or error
            except httpx2.TransportError:
                self._addresses.doubt(index)
                raise
        assert failed is not None
        raise failed

    async def aclose(self) -> None:
        await self._inner.aclose()
