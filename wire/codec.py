"""Encodes messages as the bytes of the gRPC stream, split into fragments if they are too large, and back.

Each transport message is a FromAgent or a FromControl; one with a `fragment` is a part of another. The
adapters on both sides use this module and pass only bytes to gRPC, so nothing is converted twice.

    transport message --join--> the bytes of a whole message --read--> message

A message is counted before it is parsed: one with too many parts is refused (wire.parts).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError

from stoker.wire import agent_pb2
from stoker.wire.convert import READERS, WRITERS, WireError, encodable
from stoker.wire.fragments import MESSAGE_MAX, REPORTED_MAX, TOTAL_MAX, FragmentError, Joiner, split
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted
from stoker.wire.parts import PARTS_MAX, UNCOUNTED_BYTES, PartCounter

T = TypeVar("T")

SESSION = "/stoker.agent.v1.Agents/Session"
LOGS = "/stoker.agent.v1.Agents/Logs"

TOKEN = "token-bin"
"""The metadata key of the token that the node joined with."""

REASON = "reason-bin"
"""The trailing metadata key of the reason for which control ended the stream: gRPC drops the details of an
OK."""


def encode(message: FromAgent | FromControl | LogLines | LogWanted) -> list[bytes]:
    """The transport messages of one message. Raises WireError if it or one of its numbers is too large."""
    write = WRITERS[type(message)]
    try:
        data = write(message).SerializeToString()
    except UnicodeEncodeError:
        data = write(encodable(message)).SerializeToString()
    except (TypeError, ValueError) as error:
        raise WireError(f"a {type(message).__name__} cannot be written: {error}") from None
    if len(data) <= MESSAGE_MAX:
        return [data]
    if isinstance(message, LogLines | LogWanted):
        raise WireError(f"a {type(message).__name__} of {len(data)} bytes is over the limit of {MESSAGE_MAX}")
    envelope: Any = agent_pb2.FromAgent if isinstance(message, FromAgent) else agent_pb2.FromControl
    try:
        fragments = split(data, total=REPORTED_MAX if isinstance(message, FromAgent) else TOTAL_MAX)
    except FragmentError as error:
        raise WireError(str(error)) from None
    last = len(fragments) - 1
    return [
        envelope(fragment=fragment, last_fragment=n == last).SerializeToString()
        for n, fragment in enumerate(fragments)
    ]


class Decoder(Generic[T]):
    """Decodes one stream. A large message of a session arrives as fragments; log streams have none. The first
    message may have `first` bytes, any later one `total`.

    After a WireError the stream cannot be read any further.
    """

    def __init__(self, kind: type[T], total: int = TOTAL_MAX, first: int | None = None) -> None:
        proto = getattr(agent_pb2, kind.__name__)
        self._kind = kind
        self._from_string: Callable[[bytes], Any] = proto.FromString
        self._convert: Callable[[Any], T] = READERS[kind]
        self._parts = PartCounter(proto.DESCRIPTOR)
        self._total = total
        self._joiner = Joiner(total if first is None else first)
        # Fields are written in the order of their numbers, and a fragment has no field before this one.
        fragment = proto.DESCRIPTOR.fields_by_name.get("fragment")
        self._fragment_tag = bytes((fragment.number << 3 | 2,)) if fragment else None

    def join(self, data: bytes) -> bytes | None:
        """The whole message that `data` is or completes; None if more fragments must follow."""
        if data[:1] != self._fragment_tag:
            if gathered := len(self._joiner.gathered):
                raise WireError(f"a whole message came between fragments, after {gathered} bytes")
            return data
        proto = self._parsed(data)
        try:
            return self._joiner.add(proto.fragment, last=proto.last_fragment)
        except FragmentError as error:
            raise WireError(str(error)) from None

    def read(self, whole: bytes) -> T:
        self._joiner.total = self._total
        proto = self._parsed(whole)
        if self._fragment_tag is not None and (proto.fragment or proto.last_fragment):
            raise WireError("a fragment among other fields")
        return self._convert(proto)

    def count(self, whole: bytes, most: int) -> int:
        """How many parts it has, counted no further than `most`."""
        return self._parts.count(whole, most)

    def drop(self) -> None:
        """Drops the fragments that were joined so far."""
        self._joiner.drop()

    def _parsed(self, data: bytes) -> Any:
        if len(data) > UNCOUNTED_BYTES and self._parts.count(data, PARTS_MAX) > PARTS_MAX:
            raise WireError(f"a {self._kind.__name__} of more than {PARTS_MAX} parts")
        try:
            return self._from_string(data)
        except DecodeError as error:
            raise WireError(f"{len(data)} bytes are no {self._kind.__name__}: {error}") from None
