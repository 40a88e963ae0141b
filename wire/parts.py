"""Counts the parts of an encoded message before it is parsed. Pure.

A limit in bytes does not bound the memory of a parsed message: a part may have two bytes and become an object
of a hundred. Every field of the message and of its inner messages is one part; a payload is one part, however
long. Numbers that a sender packs into one field are a part for each byte. Counting stops at a limit, so that
its cost is bounded, too. Bytes that are not a message are counted as far as they can be read; the parser
refuses them.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

PARTS_MAX = 64 * 1024
"""No message of the protocol has more parts."""

SMALLEST = 2
"""The fewest bytes of a part, a tag and a length or a value."""

UNCOUNTED_BYTES = SMALLEST * PARTS_MAX
"""So few bytes cannot have too many parts: most of the time nothing is counted."""

_LENGTH, _FIXED64, _FIXED32, _VARINT = 2, 1, 5, 0
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


class PartCounter:
    """Counts the parts of one kind of message."""

    def __init__(self, kind: Descriptor) -> None:
        self._inner = _inner(kind, {})

    def count(self, data: bytes, most: int) -> int:
        """Returns the number of parts in the message; some number over `most` if there are more."""
        found, size = 0, len(data)
        inside = [(0, size, self._inner)]
        try:
            while inside:
                at, end, inner = inside.pop()
                while at < end and found <= most:
                    found += 1
                    tag, at = _varint(data, at)
                    shape = tag & 7
                    if shape == _LENGTH:
                        length, at = _varint(data, at)
                        nested = inner.get(tag >> 3)
                        if nested is NUMBERS:
                            found = min(found + min(length, end - at), most + 1)
                        elif nested is not None and length:
                            inside.append((at, min(at + length, end), nested))
                        at += length
                    elif shape == _VARINT:
                        _, at = _varint(data, at)
                    elif shape == _FIXED64:
                        at += 8
                    elif shape == _FIXED32:
                        at += 4
        except IndexError:
            return found
        return found


_Inner = dict[int, Any]
"""By field number: the inner fields of those fields that are messages themselves, and NUMBERS for lists of
numbers."""

NUMBERS: _Inner = {}


def _inner(kind: Descriptor, known: dict[str, _Inner]) -> _Inner:
    if kind.full_name not in known:
        inner = known[kind.full_name] = {}
        for field in kind.fields:
            if field.message_type is not None:
                inner[field.number] = _inner(field.message_type, known)
            elif field.is_repeated and field.type not in _TEXTS:
                inner[field.number] = NUMBERS
    return known[kind.full_name]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number that begins at `at`, and the position after it."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, at
