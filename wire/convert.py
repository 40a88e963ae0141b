"""Between the dataclasses of `wire.messages` and their Protocol Buffers of the same name.

A plan for each dataclass is compiled once, at import, from its fields and their types (measured: a
quarter less time than walking the fields at each message); so a new field is written in agent.proto and
in messages.py, and nowhere else. What the plans rest on, and a test holds:

- every dataclass has a message of its name, and every field of it a field of its name;
- `X | None` is explicit presence, a tuple is `repeated`, a Mapping is a map;
- `Report.body` is the `oneof body`, each arm named after its class.

A string that UTF-8 cannot carry (a lone surrogate, from a handler's text) goes out with `?` in its place:
one handler's error text must not break the session of its whole node.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message

from stoker.wire import agent_pb2, messages
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted, Report

T = TypeVar("T")
Convert = Callable[[Any], Any]


class WireError(Exception):
    """A message that cannot be written, or bytes that are none; the text says which and why."""


def to_bytes(message: FromAgent | FromControl | LogLines | LogWanted) -> bytes:
    return to_proto(message).SerializeToString()


def to_proto(message: Any) -> Message:
    """The protobuf of any dataclass of wire.messages. Raises WireError for a number out of range."""
    write = _WRITERS[type(message)]
    try:
        proto: Message = write(message)
    except UnicodeEncodeError:
        proto = write(_speakable(message))
    except (TypeError, ValueError) as error:
        raise WireError(f"a {type(message).__name__} cannot be written: {error}") from None
    return proto


def from_proto(kind: type[T], proto: Message) -> T:
    read: Callable[[Any], T] = _READERS[kind]
    return read(proto)


def _speakable(value: Any) -> Any:
    """The same value with every string writable as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, tuple):
        return tuple(map(_speakable, value))
    if isinstance(value, Mapping):
        return {_speakable(k): _speakable(v) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {f.name: _speakable(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **values)
    return value


# ---- the plans --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How one field is carried: of which message (None for a plain value), in what container."""

    name: str
    message: type[Any] | None = None
    many: bool = False
    optional: bool = False
    mapping: bool = False


def shapes(kind: type[Any]) -> list[Shape]:
    """The shape of each field of a dataclass, in order."""
    hints = typing.get_type_hints(kind, vars(messages))
    return [_shape(field.name, hints[field.name]) for field in dataclasses.fields(kind)]


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
    return hint if dataclasses.is_dataclass(hint) and isinstance(hint, type) else None


def arm(kind: type[Any]) -> str:
    """The name of a report body's arm: WorkerState -> worker_state."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _writer(kind: type[Any]) -> Convert:
    """dataclass -> protobuf. protobuf takes a None for absent."""
    carried = ", ".join(f"{shape.name}={_written(shape)}" for shape in shapes(kind))
    return _function(f"lambda it: Proto({carried})", kind)


def _written(shape: Shape) -> str:
    value = f"it.{shape.name}"
    if shape.message is None:
        return value
    if shape.many:
        return f"[write_{shape.message.__name__}(one) for one in {value}]"
    return f"None if {value} is None else write_{shape.message.__name__}({value})"


def _reader(kind: type[Any]) -> Convert:
    """protobuf -> dataclass."""
    return _function(f"lambda it: Data({', '.join(map(_read, shapes(kind)))})", kind)


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


def _function(source: str, kind: type[Any]) -> Convert:
    """The text of one expression over the names of this module's plans, compiled (as dataclasses does)."""
    names: dict[str, Any] = {"Data": kind, "Proto": getattr(agent_pb2, kind.__name__)}
    names |= {f"write_{known.__name__}": plan for known, plan in _WRITERS.items()}
    names |= {f"read_{known.__name__}": plan for known, plan in _READERS.items()}
    made: Convert = eval(compile(source, f"<plan of {kind.__name__}>", "eval"), names)
    return made


def _write_report(report: Report) -> Any:
    kind = type(report.body)
    return agent_pb2.Report(number=report.number, **{_ARMS[kind]: _WRITERS[kind](report.body)})


def _read_report(proto: Any) -> Report:
    name = proto.WhichOneof("body")
    if name is None:
        raise WireError(f"report {proto.number} has no body that this side knows")
    return Report(proto.number, _READERS[_ARM_KINDS[name]](getattr(proto, name)))


def _compile(kind: type[Any]) -> None:
    """The plans of `kind`, those of what it holds first."""
    if kind in _WRITERS:
        return
    for shape in shapes(kind):
        if shape.message is not None:
            _compile(shape.message)
    _WRITERS[kind] = _writer(kind)
    _READERS[kind] = _reader(kind)


BODIES: tuple[type[Any], ...] = typing.get_args(messages.ReportBody)
_ARMS = {kind: arm(kind) for kind in BODIES}
_ARM_KINDS = {name: kind for kind, name in _ARMS.items()}
_WRITERS: dict[type[Any], Convert] = {Report: _write_report}
_READERS: dict[type[Any], Convert] = {Report: _read_report}
for _kind in (*BODIES, FromAgent, FromControl, LogLines, LogWanted):
    _compile(_kind)
