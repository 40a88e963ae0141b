"""Arguments and results as JSON, with bytes and arrays as tagged objects. Nothing is pickled.

    bytes          {"$stoker": "bytes", "data": base64}        or a reference in place of `data`
    numpy array    {"$stoker": "array", "dtype": "<f4", "shape": [2, 3], "data": base64}        the same
    a dict that has the key "$stoker" itself     {"$stoker": "object", "value": {...}}

The client's apps and the worker's functions both import this module; neither imports the other. It needs the
standard library only.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

TAG = "$stoker"
INLINE_MAX = 256 << 10
"""Bytes that are sent inside the JSON; more are stored, where that is possible."""

NUMBERS = "biufc"
"""The kinds of numpy's dtypes that are sent: numbers and booleans, no objects."""

Store = Callable[[bytes], Mapping[str, str]]
"""Stores bytes and returns the reference to them: one key other than `data`, and its value."""

Read = Callable[[Mapping[str, Any]], bytes]
"""Reads the bytes that a tagged object refers to."""


class ValueRefused(ValueError):
    """A value that cannot be sent, or a tagged object that is wrong; the message says where."""


def encode(value: Any, store: Store | None = None, *, where: str = "the value") -> Any:
    """Returns the value as JSON values. Raises ValueRefused."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueRefused(f"{where} is {value}, which JSON does not have")
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return {TAG: "bytes", **_sent(bytes(value), store)}
    if isinstance(value, Mapping):
        return _encode_object(value, store, where)
    if isinstance(value, list | tuple):
        return [encode(one, store, where=f"{where}[{n}]") for n, one in enumerate(value)]
    return _encode_array(value, store, where)


def decode(value: Any, read: Read | None = None, *, where: str = "the value") -> Any:
    """Returns the value that `encode` was given; tuples are lists. Raises ValueRefused."""
    if isinstance(value, list):
        return [decode(one, read, where=f"{where}[{n}]") for n, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: decode(one, read, where=f"{where}.{key}") for key, one in value.items()}
    match value:
        case {"$stoker": "object", "value": dict(inner)}:
            return {key: decode(one, read, where=f"{where}.{key}") for key, one in inner.items()}
        case {"$stoker": "bytes"}:
            return _received(value, read, where)
        case {"$stoker": "array", "dtype": str(dtype), "shape": [*shape]}:
            return _decode_array(dtype, shape, _received(value, read, where), where)
    raise ValueRefused(f"{where} has a {TAG} that is neither bytes, array nor object")


def _encode_object(value: Mapping[Any, Any], store: Store | None, where: str) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise ValueRefused(f"{where} has the key {key!r:.100}; the keys of JSON are texts")
    plain = {key: encode(one, store, where=f"{where}.{key}") for key, one in value.items()}
    return {TAG: "object", "value": plain} if TAG in plain else plain


def _encode_array(value: Any, store: Store | None, where: str) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
        return encode(value.item(), store, where=where)
    if numpy is None or not isinstance(value, numpy.ndarray):
        raise ValueRefused(
            f"{where} is a {type(value).__qualname__}; None, bool, int, float, str, bytes, list, tuple, dict"
            " and arrays of numpy can be sent"
        )
    if value.dtype.kind not in NUMBERS:
        raise ValueRefused(
            f"{where} is an array of {value.dtype}; arrays of numbers and booleans can be sent"
        )
    data = numpy.ascontiguousarray(value).tobytes()
    return {TAG: "array", "dtype": value.dtype.str, "shape": list(value.shape), **_sent(data, store)}


def _decode_array(dtype: str, shape: list[Any], data: bytes, where: str) -> Any:
    try:
        numpy = importlib.import_module("numpy")  # not at the top: neither side depends on it
    except ImportError:
        raise ValueRefused(f"{where} is an array, and numpy is not installed here") from None
    try:
        kind = numpy.dtype(dtype)
        if kind.kind not in NUMBERS:
            raise ValueError(f"no array of {dtype} is received")
        return numpy.frombuffer(data, kind).reshape([int(one) for one in shape]).copy()
    except (TypeError, ValueError) as error:
        raise ValueRefused(f"{where} is not an array: {error}") from None


def _sent(data: bytes, store: Store | None) -> Mapping[str, str]:
    if store is not None and len(data) > INLINE_MAX:
        return store(data)
    return {"data": base64.b64encode(data).decode()}


def _received(value: Mapping[str, Any], read: Read | None, where: str) -> bytes:
    if "data" in value:
        try:
            return base64.b64decode(value["data"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise ValueRefused(f"{where} has data that is not base64") from None
    if read is None:
        raise ValueRefused(f"{where} has no data")
    return read(value)
