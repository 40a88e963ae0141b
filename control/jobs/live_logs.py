"""The output of followed attempts and workers, as their agents send it: bounded, in memory, for readers.

    first reader ──> its node receives: wanted ──LogLines──> Ring ──> readers
    last reader goes ──LINGER_S without another──> no longer wanted, forgotten

Nothing is stored here: what is kept of an attempt comes with its outcome, and nothing is of a worker. A node
without a stream of logs (an older agent) receives no request, and its rings stay empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from stoker.control.rules.nodes.validation import InvalidReport, printed
from stoker.control.rules.streams import LogLine, numbered
from stoker.wire.messages import AttemptKey, LogLines, LogWanted, StreamHello
from stoker.wire.streams import ControlLogs, StreamEnded, first_message

log = logging.getLogger(__name__)

RING_LINES = 2000
RING_CHARACTERS = 512 * 1024
LINGER_S = 10.0
"""How long what a reader missed is kept after its connection broke."""


class Ring:
    """The last lines of one attempt or worker, numbered. `over`: nothing follows. `caught_up`: what its agent
    remembered when it was asked is here."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._characters = 0
        self.next = 0
        self.over = False
        self.fed = self.caught_up = False
        self.readers: list[asyncio.Event] = []
        self.forgetting: asyncio.TimerHandle | None = None

    def feed(self, report: LogLines) -> None:
        """Takes in lines. Lines that came before, on a stream that broke, are not taken twice."""
        for line in numbered(report.first, report.lines, report.at_ms):
            if line.n >= self.next:
                self._lines.append(line)
                self._characters += len(line.text)
                self.next = line.n + 1
        self.next = max(self.next, report.first)
        while len(self._lines) > RING_LINES or self._characters > RING_CHARACTERS:
            self._characters -= len(self._lines.popleft().text)
        self.fed = True
        self.caught_up = self.caught_up or not report.more
        self.over = self.over or report.over
        self.ring()

    def ring(self) -> None:
        for reader in self.readers:
            reader.set()

    def after(self, number: int) -> list[LogLine]:
        """Returns the lines that are kept and come after this one, oldest first."""
        return [line for line in self._lines if line.n > number]


class LiveLogs:
    """The rings of all that is followed, and the streams that fill them. `accept` returns why the holder of
    a token may not send the logs of the node that its Hello names."""

    def __init__(self, accept: Callable[[StreamHello, str], Awaitable[str | None]]) -> None:
        self._accept = accept
        self._rings: dict[AttemptKey, tuple[str, Ring]] = {}
        self._streams: dict[str, tuple[ControlLogs, asyncio.Event]] = {}

    # -- readers

    def has_stream(self, node: str) -> bool:
        return node in self._streams

    @contextmanager
    def reading(self, key: AttemptKey, node: str, changed: asyncio.Event) -> Iterator[Ring]:
        """Yields the ring of an attempt or a worker; `changed` is set when something is new in it."""
        _, ring = self._rings.setdefault(key, (node, Ring()))
        if ring.forgetting is not None:
            ring.forgetting.cancel()
            ring.forgetting = None
        ring.readers.append(changed)
        self._wake(node)
        try:
            yield ring
        finally:
            ring.readers.remove(changed)
            if not ring.readers:
                loop = asyncio.get_running_loop()
                ring.forgetting = loop.call_later(LINGER_S, self._forget, key)

    def known(self, key: AttemptKey) -> Ring | None:
        """Returns the lines of an ended attempt that a reader followed a moment ago, or None."""
        return self._rings[key][1] if key in self._rings else None

    def _forget(self, key: AttemptKey) -> None:
        node, _ = self._rings.pop(key)
        self._wake(node)

    def close(self) -> None:
        for _, ring in self._rings.values():
            if ring.forgetting is not None:
                ring.forgetting.cancel()

    def _wake(self, node: str) -> None:
        if node in self._streams:
            self._streams[node][1].set()

    def _wanted(self, node: str) -> tuple[AttemptKey, ...]:
        return tuple(key for key, (at, ring) in self._rings.items() if at == node and not ring.over)

    # -- nodes

    def disconnect(self, nodes: Iterable[str]) -> None:
        """Ends the streams of nodes whose credential was revoked."""
        for node in nodes:
            if node in self._streams:
                self._streams[node][0].end("its credential was revoked")

    async def serve(self, stream: ControlLogs, peer: str, token: str) -> None:
        """Serves one stream of one node, from its Hello to its end."""
        if (message := await first_message(stream)) is None:
            return
        hello = message.hello
        refusal: str | None = "the first message must say who speaks"
        if hello is not None:
            refusal = await self._accept(hello, token)
        if hello is None or refusal is not None:
            log.warning("the logs of %s are refused: %s", peer, refusal)
            stream.end(refusal or "")
            return
        wake = asyncio.Event()
        wake.set()
        earlier = self._streams.get(hello.node)
        self._streams[hello.node] = stream, wake
        if earlier is not None:
            earlier[0].end("a newer stream took over")
        asking = asyncio.create_task(self._request(hello.node, stream, wake), name=f"logs of {hello.node}")
        try:
            logged = False
            while True:
                why = self._feed(hello.node, await stream.receive())
                if why is not None and not logged:
                    logged = True
                    log.warning("node %s sent LogLines that were refused: %s", hello.node, why)
        finally:
            asking.cancel()
            await asyncio.wait((asking,))
            if self._streams.get(hello.node) == (stream, wake):
                del self._streams[hello.node]
                self._ring_all(hello.node)

    async def _request(self, node: str, stream: ControlLogs, wake: asyncio.Event) -> None:
        sent: tuple[AttemptKey, ...] = ()
        try:
            while True:
                await wake.wait()
                wake.clear()
                wanted = self._wanted(node)
                if wanted != sent:
                    sent = wanted
                    await stream.send(LogWanted(wanted))
        except StreamEnded:
            return  # the reading half says why

    def _feed(self, node: str, report: LogLines) -> str | None:
        """Stores these lines. Returns why they are refused; None where they are not, or where no reader is
        left."""
        at, ring = self._rings.get(report.key, ("", None))
        if ring is not None:
            try:
                printed(report, node, at)
            except InvalidReport as error:
                return str(error)
            ring.feed(report)
        return None

    def _ring_all(self, node: str) -> None:
        """Reports to those who wait for lines of this node that none come now."""
        for at, ring in self._rings.values():
            if at == node:
                ring.ring()
