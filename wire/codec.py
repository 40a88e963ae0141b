"""Encodes messages as the bytes of the gRPC stream, split into fragments if they are too large, and back.

Each transport message is a FromAgent or a FromControl; one with a `fragment` is a part of another. The
adapters on both sides use this module and pass only bytes to gRPC, so nothing is converted twice.

    transport message --join--> the bytes of a whole message --read--> message

A message is counted before it is parsed: one with too many parts is refused (wire.parts).

The records of `wire.messages` become Protocol Buffers of the same name. A converter of a record is
compiled once, with the first message, from its fields and their types (measured: this takes a quarter less
time than walking the fields of each message); a process needs one of its two. So a new field is added in
agent.proto and in messages/, and nowhere else. The converters rely on these rules, and a test checks them:

- every record has a message of its name, and every field of it a field of its name;
- `X | None` is explicit presence, a tuple is `repeated`, a Mapping is a map;
- `Report.body` is the `oneof body`, each arm named after its class.

A character that UTF-8 cannot encode (a lone surrogate in a handler's text) is sent as `?`: one handler's
error text must not end the session of its node.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError
from msgspec import Struct, structs

from stoker.wire import agent_pb2, messages
from stoker.wire.fragments import MESSAGE_MAX, REPORTED_MAX, TOTAL_MAX, FragmentError, Joiner, split
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted, Report, TunnelPieces
from stoker.wire.parts import PARTS_MAX, UNCOUNTED_BYTES, PartCounter

T = TypeVar("T")
Convert = Callable[[Any], Any]

SESSION = "/stoker.agent.v1.Agents/Session"
LOGS = "/stoker.agent.v1.Agents/Logs"
TUNNEL = "/stoker.agent.v1.Agents/Tunnel"

TOKEN = "token-bin"
"""The metadata key of the token that the node joined with."""

REASON = "reason-bin"
"""The trailing metadata key of the reason for which control ended the stream: gRPC drops the details of an
OK."""


class WireError(Exception):
    """A message that cannot be encoded, or bytes that are not a message; the text says which and why."""


# ---- compiled converters ----------------------------------------------------------------------


class Shape(Struct, frozen=True):
    """The encoding of a field: as which message (None for a plain value), in what container."""

    name: str
    message: type[Any] | None = None
    many: bool = False
    optional: bool = False
    mapping: bool = False


def shapes(kind: type[Any]) -> list[Shape]:
    """Returns the shape of each field of a record, in order."""
    hints = typing.get_type_hints(kind)
    return [_shape(name, hints[name]) for name in kind.__struct_fields__]


def _shape(name: str, hint: Any) -> Shape:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return Shape(name, _message(arguments[0]), many=True)
    if typing.get_origin(hint) is Mapping:
        return Shape(name, mapping=True)
    if isinstance(hint, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return Shape(name, _message(inner), optional=True)
    return Shape(name, _message(hint))


def _message(hint: Any) -> type[Any] | None:
    return hint if isinstance(hint, type) and issubclass(hint, Struct) else None


def arm(kind: type[Any]) -> str:
    """Returns the name of a report body's arm: WorkerState -> worker_state."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _writer(kind: type[Any]) -> Convert:
    """Converts a record to protobuf, which takes None as absent."""
    fields = shapes(kind)
    carried = ", ".join(f"{shape.name}={_written(shape)}" for shape in fields)
    parts = {f"write_{part.__name__}": WRITERS[part] for part in _parts(fields)}
    return _function(f"lambda it: Proto({carried})", kind, parts)


def _written(shape: Shape) -> str:
    value = f"it.{shape.name}"
    if shape.message is None:
        return value
    if shape.many:
        return f"[write_{shape.message.__name__}(one) for one in {value}]"
    return f"None if {value} is None else write_{shape.message.__name__}({value})"


def _reader(kind: type[Any]) -> Convert:
    """Converts protobuf to a record."""
    fields = shapes(kind)
    parts = {f"read_{part.__name__}": READERS[part] for part in _parts(fields)}
    return _function(f"lambda it: Data({', '.join(map(_read, fields))})", kind, parts)


def _read(shape: Shape) -> str:
    value = f"it.{shape.name}"
    if shape.mapping:
        return f"dict({value})"
    if shape.many and shape.message is not None:
        return f"tuple([read_{shape.message.__name__}(one) for one in {value}])"
    if shape.many:
        return f"tuple({value})"
    if shape.message is not None:
        return f"read_{shape.message.__name__}({value}) if it.HasField({shape.name!r}) else None"
    return f"{value} if it.HasField({shape.name!r}) else None" if shape.optional else value


def _parts(fields: Iterable[Shape]) -> set[type[Any]]:
    return {shape.message for shape in fields if shape.message is not None}


def _function(source: str, kind: type[Any], parts: Mapping[str, Convert]) -> Convert:
    """Compiles one expression that may use the converters of the messages in it (as dataclasses does)."""
    names = {"Data": kind, "Proto": getattr(agent_pb2, kind.__name__), **parts}
    made: Convert = eval(compile(source, f"<converter of {kind.__name__}>", "eval"), names)
    return made


class _Converters(dict[type[Any], Convert]):
    """Converters by their record, each compiled when it is first looked up."""

    def __init__(self, compiled: Callable[[type[Any]], Convert], known: Mapping[type[Any], Convert]) -> None:
        super().__init__(known)
        self._compiled = compiled

    def __missing__(self, kind: type[Any]) -> Convert:
        made = self[kind] = self._compiled(kind)
        return made


def _write_report(report: Report) -> Any:
    kind = type(report.body)
    return agent_pb2.Report(number=report.number, **{_ARMS[kind]: WRITERS[kind](report.body)})


def _read_report(proto: Any) -> Report:
    name = proto.WhichOneof("body")
    if name is None:
        raise WireError(f"report {proto.number} has no body that this version can read")
    return Report(proto.number, READERS[_ARM_KINDS[name]](getattr(proto, name)))


BODIES: tuple[type[Any], ...] = typing.get_args(messages.ReportBody)
_ARMS = {kind: arm(kind) for kind in BODIES}
_ARM_KINDS = {name: kind for kind, name in _ARMS.items()}
WRITERS = _Converters(_writer, {Report: _write_report})
"""Each makes the protobuf of one record. Raises TypeError, ValueError or UnicodeEncodeError."""
READERS = _Converters(_reader, {Report: _read_report})
"""Each makes the record of its protobuf. Raises WireError for a report that this version cannot read."""


# ---- the bytes of the stream -----------------------------------------------------------------


def encodable(value: Any) -> Any:
    """Returns the same value with every string writable as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, tuple):
        return tuple(map(encodable, value))
    if isinstance(value, Mapping):
        return {encodable(k): encodable(v) for k, v in value.items()}
    if isinstance(value, Struct):
        values = {name: encodable(held) for name, held in structs.asdict(value).items()}
        return structs.replace(value, **values)
    return value


def encode(message: FromAgent | FromControl | LogLines | LogWanted | TunnelPieces) -> list[bytes]:
    """Returns the transport messages of one message. Raises WireError if it or one of its numbers is too
    large."""
    write = WRITERS[type(message)]
    try:
        data = write(message).SerializeToString()
    except UnicodeEncodeError:
        data = write(encodable(message)).SerializeToString()
    except (TypeError, ValueError) as error:
        raise WireError(f"a {type(message).__name__} cannot be written: {error}") from None
    if len(data) <= MESSAGE_MAX:
        return [data]
    if isinstance(message, LogLines | LogWanted | TunnelPieces):
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
    """Decodes one stream. A large message of a session arrives as fragments; other streams have none. The
    first message may have `first` bytes, any later one `total`.

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
        """Returns the whole message that `data` is or completes; None if more fragments must follow."""
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
        """Returns the number of parts in the message, counted no further than `most`."""
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
            raise WireError(
                f"a message of {len(data)} bytes cannot be read as {self._kind.__name__}: {error}"
            ) from None
