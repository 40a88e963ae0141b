"""Messages of the log stream, which an agent opens in addition to its session."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.wire.messages.shared import AttemptKey


@dataclass(frozen=True, slots=True)
class StreamHello:
    """Who opened a further stream: the node, and the number of its session."""

    node: str
    session: int


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines of one attempt, counted from 0. `first` is the number of the first line; a gap before it means
    lines were left out. `over`: no more lines follow. `at_ms`: when each line was printed, since the epoch;
    empty where that is not known."""

    hello: StreamHello | None = None
    job: str = ""
    attempt: int = 0
    first: int = 0
    lines: tuple[str, ...] = ()
    over: bool = False
    at_ms: tuple[int, ...] = ()

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job, self.attempt)


@dataclass(frozen=True, slots=True)
class LogWanted:
    attempts: tuple[AttemptKey, ...] = ()
