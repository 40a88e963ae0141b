"""Converts the dataclasses of `wire.messages` to the Protocol Buffers of the same name, and back.

The converters of each dataclass are compiled once, at import, from its fields and their types (measured: this
takes a quarter less time than walking the fields of each message). So a new field is added in agent.proto and
in messages/, and nowhere else. The converters rely on these rules, and a test checks them:

- every dataclass has a message of its name, and every field of it a field of its name;
- `X | None` is explicit presence, a tuple is `repeated`, a Mapping is a map;
- `Report.body` is the `oneof body`, each arm named after its class.

A character that UTF-8 cannot encode (a lone surrogate in a handler's text) is sent as `?`: one handler's
error text must not end the session of its node.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stoker.wire import agent_pb2, messages
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted, Report

T = TypeVar("T")
Convert = Callable[[Any], Any]


class WireError(Exception):
    """A message that cannot be encoded, or bytes that are not a message; the text says which and why."""


def encodable(value: Any) -> Any:
    """The same value with every string writable as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, tuple):
        return tuple(map(encodable, value))
    if isinstance(value, Mapping):
        return {encodable(k): encodable(v) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {f.name: encodable(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **values)
    return value


# ---- compiled converters ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How one field is encoded: as which message (None for a plain value), in what container."""

    name: str
    message: type[Any] | None = None
    many: bool = False
    optional: bool = False
    mapping: bool = False


def shapes(kind: type[Any]) -> list[Shape]:
    """The shape of each field of a dataclass, in order."""
    hints = typing.get_type_hints(kind)
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
    """Converts a dataclass to protobuf, which takes None as absent."""
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
    """Converts protobuf to a dataclass."""
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
    """Compiles one expression that may use the converters of other messages (as dataclasses does)."""
    names: dict[str, Any] = {"Data": kind, "Proto": getattr(agent_pb2, kind.__name__)}
    names |= {f"write_{known.__name__}": write for known, write in WRITERS.items()}
    names |= {f"read_{known.__name__}": read for known, read in READERS.items()}
    made: Convert = eval(compile(source, f"<converter of {kind.__name__}>", "eval"), names)
    return made


def _write_report(report: Report) -> Any:
    kind = type(report.body)
    return agent_pb2.Report(number=report.number, **{_ARMS[kind]: WRITERS[kind](report.body)})


def _read_report(proto: Any) -> Report:
    name = proto.WhichOneof("body")
    if name is None:
        raise WireError(f"report {proto.number} has no body that this side knows")
    return Report(proto.number, READERS[_ARM_KINDS[name]](getattr(proto, name)))


def _compile(kind: type[Any]) -> None:
    """Compiles the converters of `kind`, after those of the messages in it."""
    if kind in WRITERS:
        return
    for shape in shapes(kind):
        if shape.message is not None:
            _compile(shape.message)
    WRITERS[kind] = _writer(kind)
    READERS[kind] = _reader(kind)


BODIES: tuple[type[Any], ...] = typing.get_args(messages.ReportBody)
_ARMS = {kind: arm(kind) for kind in BODIES}
_ARM_KINDS = {name: kind for kind, name in _ARMS.items()}
WRITERS: dict[type[Any], Convert] = {Report: _write_report}
"""Each makes the protobuf of one dataclass. Raises TypeError, ValueError or UnicodeEncodeError."""
READERS: dict[type[Any], Convert] = {Report: _read_report}
"""Each makes the dataclass of its protobuf. Raises WireError for a report that this side does not know."""
for _kind in (*BODIES, FromAgent, FromControl, LogLines, LogWanted):
    _compile(_kind)
