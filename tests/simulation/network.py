"""The network between agents and control: it takes its time, falls silent, breaks, tells one side only.

drop      both ends learn of it, and lose what was under way
sever     nothing passes any more and nobody learns of it; `deaf` names a side that ends all the same
silence   what is sent arrives later, as TCP sends again
doubled   messages arrive twice, as from a side that sends again; what the attempt before one came to is
          told after that one was assigned, as by a node that was given up and was not dead
swallow   the next message with an Assign or a Cancel is lost, and the connection with it
poison    the next report of a kind is one that the store cannot take
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from stoker.testing.memory_stream import MemoryStream, StreamEnd
from stoker.wire.messages import FromAgent, FromControl, Outcome, Progress, Report
from stoker.wire.streams import StreamEnded
from tests.simulation.virtual_loop import VirtualLoop

TOO_LARGE = 1 << 70
"""More than a column holds: whoever stores it raises, and not because the disk is full."""


OF_BEFORE = b'{"request": null, "attempt": 0}'


class Wire(MemoryStream[Any, Any]):
    """One end of a link."""

    link: Link

    async def send(self, message: Any) -> None:
        if self._ended is not None:
            raise StreamEnded(self._ended)
        self.link.carry(self, message)

    def _peer_ended(self, reason: str) -> None:
        """Called on the end that is to learn of it: after what was sent before."""
        assert isinstance(self.peer, Wire)
        self.link.later(self.peer, StreamEnd(reason))

    def ends_here(self, reason: str) -> None:
        """This side alone learns that it is over."""
        if self._ended is None:
            self._ended = reason
            self._inbox.put_nowait(StreamEnd(reason))


class Link:
    """One connection between an agent, by the name of its host, and control."""

    def __init__(self, network: Network, host: str) -> None:
        network.made += 1
        self.number = network.made
        self.network = network
        self.host = host
        self.severed = False
        self.broken_at: float | None = None
        self.agent, self.control = Wire(), Wire()
        self.agent.peer, self.control.peer = self.control, self.agent
        self.agent.link = self.control.link = self
        self._last = [0.0, 0.0]

    def carry(self, sender: Wire, message: Any) -> None:
        network = self.network
        if sender is self.agent:
            message = network.tampered(self, message)
            network.on_sent_up(self, message)
        else:
            network.on_sent_down(self, message)
            if network.swallows(self, message):
                return
        self.later(sender, message)
        doubled = network.doubled.get(self.host, 0.0)
        if doubled and _may_repeat(message) and network.rng.random() < doubled:
            self.later(sender, message)
            if isinstance(message, FromControl):
                self._ends_of_before(message)

    def later(self, sender: Wire, message: Any) -> None:
        side = int(sender is self.agent)
        at = self._last[side] = self.network.arrival(self, self._last[side])
        self.network.loop.call_at(at, self._arrive, sender, message, context=self.network.context)

    def _ends_of_before(self, message: FromControl) -> None:
        earlier = [
            Outcome(one.job, one.attempt - 1, "a-worker-of-before", "completed", output=OF_BEFORE)
            for one in message.assigns
            if one.attempt > 1
        ]
        if earlier:
            self.later(self.agent, FromAgent(reports=tuple(Report(1, one) for one in earlier)))

    def _arrive(self, sender: Wire, message: Any) -> None:
        receiver = sender.peer
        if self.severed or receiver._ended is not None:
            return
        if receiver is self.agent and not isinstance(message, StreamEnd):
            self.network.on_received(self, message)
        receiver._inbox.put_nowait(message)

    @property
    def alive(self) -> bool:
        """Neither end has ended, and what is sent arrives."""
        return not self.severed and self.agent._ended is None and self.control._ended is None

    def cut(self) -> None:
        """Both ends lose what was under way, and learn of it."""
        self.sever()
        for end in (self.agent, self.control):
            while not end._inbox.empty():
                end._inbox.get_nowait()
            end.ends_here("the connection was cut")

    def sever(self, *learns: str) -> None:
        """Nothing passes any more; only the sides that are named learn of it."""
        if not self.severed:
            self.severed, self.broken_at = True, self.network.loop.time()
        for side in learns:
            (self.agent if side == "agent" else self.control).ends_here("the connection broke")


def _may_repeat(message: Any) -> bool:
    """Nobody sends a Hello or its answer twice on one connection."""
    if isinstance(message, FromAgent):
        return message.hello is None
    answers = (message.welcome, message.refusal, message.credential)
    return answers == (None, None, None)


@dataclass
class Network:
    """`on_…` are the witness's ears."""

    loop: VirtualLoop
    rng: Random
    silent_until: dict[str, float] = field(default_factory=dict)
    doubled: dict[str, float] = field(default_factory=dict)
    swallowing: dict[str, str] = field(default_factory=dict)
    poisoning: dict[str, type] = field(default_factory=dict)
    links: dict[str, list[Link]] = field(default_factory=dict)
    made: int = 0
    on_sent_up: Callable[[Link, FromAgent], None] = lambda *_: None
    on_sent_down: Callable[[Link, FromControl], None] = lambda *_: None
    on_received: Callable[[Link, FromControl], None] = lambda *_: None
    on_poisoned: Callable[[Any], None] = lambda *_: None

    def __post_init__(self) -> None:
        self.context = copy_context()  # what is under way outlives the process that sent it

    def silent(self, host: str) -> bool:
        return self.loop.time() < self.silent_until.get(host, 0.0)

    def arrival(self, link: Link, last: float) -> float:
        """When a message sent now arrives: after a silence; none overtakes another."""
        earliest = max(self.loop.time(), self.silent_until.get(link.host, 0.0))
        return max(last + 1e-6, earliest + 0.0001 + self.rng.random() * 0.003)

    def join(self, host: str) -> Link:
        link = Link(self, host)
        living = [one for one in self.links.get(host, ()) if one.alive]
        self.links[host] = [*living, link]
        return link

    def open(self, host: str) -> list[Link]:
        return [link for link in self.links.get(host, ()) if link.alive]

    def drop(self, host: str) -> None:
        for link in self.links.pop(host, ()):
            link.cut()

    def sever(self, host: str, *learns: str) -> None:
        for link in self.links.pop(host, ()):
            link.sever(*learns)

    def swallows(self, link: Link, message: FromControl) -> bool:
        wanted = self.swallowing.get(link.host)
        if wanted is None or not (message.assigns if wanted == "assign" else message.cancels):
            return False
        del self.swallowing[link.host]
        self.loop.call_later(0.05, link.cut, context=self.context)
        link.sever()
        return True

    def tampered(self, link: Link, message: FromAgent) -> FromAgent:
        kind = self.poisoning.get(link.host)
        if kind is None:
            return message
        for n, report in enumerate(message.reports):
            if isinstance(report.body, kind):
                del self.poisoning[link.host]
                self.on_poisoned(report.body)
                bad = Report(report.number, _poisoned(report.body))
                return replace(message, reports=(*message.reports[:n], bad, *message.reports[n + 1 :]))
        return message


def _poisoned(body: Any) -> Any:
    if isinstance(body, Outcome):
        return replace(body, execution_ms=TOO_LARGE, end="completed", retryable=False)
    if isinstance(body, Progress):
        return replace(body, value=TOO_LARGE)
    return replace(body, n=TOO_LARGE)
