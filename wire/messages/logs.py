"""Messages of the log stream, which an agent opens in addition to its session."""

from __future__ import annotations

from msgspec import Struct

from stoker.wire.messages.shared import AttemptKey


class StreamHello(Struct, frozen=True):
    """The opener of a further stream: the node, and the number of its session."""

    node: str
    session: int


def log_of_worker(worker: str) -> AttemptKey:
    """Returns the key under which all that a worker prints is followed: attempts count from 1."""
    return AttemptKey(worker, 0)


class LogLines(Struct, frozen=True):
    """Lines of one attempt or worker, counted from 0. `first` is the number of the first line; a gap before
    it means lines were left out. `over`: no more lines follow; `more`: others wait to be sent. `at_ms`: when
    each line was printed, since the epoch; empty where that is not known."""

    hello: StreamHello | None = None
    job: str = ""
    attempt: int = 0
    first: int = 0
    lines: tuple[str, ...] = ()
    over: bool = False
    at_ms: tuple[int, ...] = ()
    more: bool = False

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job, self.attempt)


class LogWanted(Struct, frozen=True):
    attempts: tuple[AttemptKey, ...] = ()
