"""A handler's value as JSON bytes, and the Files in it handed over as open descriptors, one at a time.

A `File` becomes `{"$file": n}`, where n counts the attempt's files. A value that JSON cannot hold raises an
error that names its path and type: `output.items[3].x is a set, which JSON cannot hold; make it a list`. NaN,
lone surrogates and a handler's own `"$file"` key are refused too: they would break a later reader, which
cannot report it to the handler's author.

A plain value is encoded by one call of the encoder in C. Only if that fails, or a file mark appears in the
text, is the value walked in Python.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

from stoker.worker.errors import OutputError
from stoker.worker.frames import FILE_MARK
from stoker.worker.payloads.files import OpenFile, open_file
from stoker.worker.sdk import File

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
decode = json.JSONDecoder().decode  # both are looked up now: a handler may patch the `json` module
_MARK_TEXT = f'"{FILE_MARK}"'

HandOver = Callable[[OpenFile], int]
"""Sends a file, which its caller closes afterwards, and returns its number."""

_WHOLE_MAX_BITS = 14_000
"""Just under the 4300 digits that Python converts to text."""

_ASYNC_HINT = "the handler is async behind something that hides it; the outermost function must be async"
_HINTS = {
    "bytes": "return it as a File, or as base64 text",
    "bytearray": "return it as a File, or as base64 text",
    "set": "make it a list",
    "frozenset": "make it a list",
    "PosixPath": "wrap it in File(...) to hand the file over, or make it a str",
    "coroutine": _ASYNC_HINT,
    "async_generator": _ASYNC_HINT,
}


def encode_value(value: object, *, name: str, scratch: str = "", hand_over: HandOver | None = None) -> bytes:
    """Returns the JSON text of `value`. Each File in it is opened and handed over, one after the other.

    `name` is the value's name in errors. Without `hand_over` every File is refused. Raises OutputError or
    FileRefused; some files may have been handed over by then.
    """
    try:
        text = _encode(value)
        if _MARK_TEXT not in text:
            return text.encode()
    except (TypeError, ValueError, RecursionError):
        pass  # a File, or something wrong: the walk finds out which
    try:
        return _encode(_Walk(name, scratch, hand_over).plain(value)).encode()
    except RecursionError:
        raise OutputError(f"{name} is nested too deeply, or holds itself") from None


class _Walk:
    """A single walk over one value. `_path` leads to the place where the walk is."""

    def __init__(self, name: str, scratch: str, hand_over: HandOver | None) -> None:
        self._path: list[str] = [name]
        self._scratch = scratch
        self._hand_over = hand_over
        self._seen: dict[int, int] = {}

    def plain(self, value: object) -> object:
        """Returns the value with every File replaced. Raises OutputError for the first thing JSON cannot
        hold.
        """
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, float):
            return self._number(value)
        if isinstance(value, int):
            return self._whole(value)
        if value is None:
            return value
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return [self._below(f"[{i}]", item) for i, item in enumerate(value)]
        if isinstance(value, File):
            return {FILE_MARK: self._number_of(value)}
        raise OutputError(f"{self._path_text()} is {_type_name(value)}, which JSON cannot hold{_hint(value)}")

    def _below(self, step: str, value: object) -> object:
        self._path.append(step)
        plain = self.plain(value)
        self._path.pop()
        return plain

    def _mapping(self, value: dict[Any, object]) -> dict[Any, object]:
        self._require_keys(value)
        return {key: self._below(_step(key), item) for key, item in value.items()}

    def _require_keys(self, keys: Iterable[object]) -> None:
        for key in keys:
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise OutputError(f"{self._path_text()} has {_type_name(key)} as a key; JSON's keys are text")
            if key == FILE_MARK:
                raise OutputError(f'{self._path_text()} has the key "{FILE_MARK}", which is kept for files')
            self.plain(key)

    def _text(self, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise OutputError(
                f"{self._path_text()} is text with a lone surrogate, which is not Unicode"
            ) from None
        return value

    def _number(self, value: float) -> float:
        if not math.isfinite(value):
            raise OutputError(f"{self._path_text()} is {float(value)!r}, which JSON cannot hold")
        return value

    def _whole(self, value: int) -> int:
        if value.bit_length() > _WHOLE_MAX_BITS:
            raise OutputError(f"{self._path_text()} is a whole number too large for JSON")
        return value

    def _number_of(self, file: File) -> int:
        """Returns the number of this File; a File that occurs twice in the value is handed over once."""
        if self._hand_over is None:
            raise OutputError(f"{self._path_text()} is a File; put it in the final output instead")
        if id(file) not in self._seen:
            opened = open_file(file, self._scratch)
            try:
                self._seen[id(file)] = self._hand_over(opened)
            finally:
                os.close(opened.fd)
        return self._seen[id(file)]

    def _path_text(self) -> str:
        return "".join(self._path)


def _step(key: object) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f".{key}"
    return f"[{ascii(key)[:80]}]"


def _type_name(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _hint(value: object) -> str:
    hint = _HINTS.get(type(value).__name__)
    if hint is None and hasattr(value, "tolist"):
        hint = "call its tolist()"
    elif hint is None and hasattr(value, "save"):
        hint = "save it below job.scratch and return a File"
    return f"; {hint}" if hint else ""
