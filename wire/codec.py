"""Messages as the bytes that cross the gRPC stream: converted, and cut where they are too large.

Each transport message is a FromAgent or FromControl; one that carries `fragment` is a piece of another.
The adapters on both sides use this, and give gRPC bytes only, so nothing is converted twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError

from stoker.wire import agent_pb2
from stoker.wire.convert import WireError, from_proto, to_bytes
from stoker.wire.fragments import MESSAGE_MAX, FragmentError, Joiner, split
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted

T = TypeVar("T")

SESSION = "/stoker.agent.v1.Agents/Session"
LOGS = "/stoker.agent.v1.Agents/Logs"

REASON = "reason-bin"
"""The trailing metadata in which control says why it ended the stream (gRPC drops the details of an OK)."""


def encode(message: FromAgent | FromControl | LogLines | LogWanted) -> list[bytes]:
    """The transport messages of one message. Raises WireError when it cannot be sent at all."""
    data = to_bytes(message)
    if len(data) <= MESSAGE_MAX:
        return [data]
    if isinstance(message, LogLines | LogWanted):
        raise WireError(f"a {type(message).__name__} of {len(data)} bytes is over the limit of {MESSAGE_MAX}")
    envelope: Any = agent_pb2.FromAgent if isinstance(message, FromAgent) else agent_pb2.FromControl
    try:
        pieces = split(data)
    except FragmentError as error:
        raise WireError(str(error)) from None
    last = len(pieces) - 1
    return [
        envelope(fragment=piece, last_fragment=n == last).SerializeToString()
        for n, piece in enumerate(pieces)
    ]


class Decoder(Generic[T]):
    """Transport messages in, messages out: for the stream of logs, whose messages are never cut.

    Raises WireError; then the stream is of no further use.
    """

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._from_string: Callable[[bytes], Any] = getattr(agent_pb2, kind.__name__).FromString

    def feed(self, data: bytes) -> T | None:
        """The message that `data` is or completes; None for a piece that does not."""
        return from_proto(self._kind, self._parsed(data))

    def _parsed(self, data: bytes) -> Any:
        try:
            return self._from_string(data)
        except DecodeError as error:
            raise WireError(f"{len(data)} bytes are no {self._kind.__name__}: {error}") from None


class JoiningDecoder(Decoder[T]):
    """For the stream of a session, on which a large message comes in pieces."""

    def __init__(self, kind: type[T]) -> None:
        super().__init__(kind)
        self._joiner = Joiner()

    def feed(self, data: bytes) -> T | None:
        proto = self._parsed(data)
        try:
            if proto.fragment or proto.last_fragment:
                whole = self._joiner.add(proto.fragment, last=proto.last_fragment)
                if whole is None:
                    return None
                proto = self._parsed(whole)
            else:
                self._joiner.refuse_whole()
        except FragmentError as error:
            raise WireError(str(error)) from None
        return from_proto(self._kind, proto)
