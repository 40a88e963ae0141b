"""Every message of the contract, and strategies that draw them."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

from stoker.wire import messages

KINDS = [
    kind
    for kind in vars(messages).values()
    if isinstance(kind, type) and issubclass(kind, Struct) and kind.__module__.startswith(messages.__name__)
]
# What the wire carries: text of any letters UTF-8 knows, numbers of the field's width.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SMALL = {"protocol", "index", "utilisation", "temperature", "version", "attempt", "n", "concurrency"}
SMALL |= {
    "slots",
    "max_jobs",
    "pids",
    "files",
    "restarts",
    "private",
    "public",
    "port",
    "exit_code",
    "jobs_ahead",
    "connection",
    "taken_bytes",
}


@functools.cache
def value_of(name: str, hint: Any) -> st.SearchStrategy[Any]:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return st.lists(value_of(name, arguments[0]), max_size=3).map(tuple)
    if typing.get_origin(hint) is Mapping:
        return st.dictionaries(TEXT, TEXT, max_size=3)
    if arguments:
        return st.one_of([st.none() if a is type(None) else value_of(name, a) for a in arguments])
    if issubclass(hint, Struct):
        return instances(hint)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        bytes: st.binary(max_size=20),
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        int: st.integers(0, 2**32 - 1 if name in SMALL else 2**64 - 1),
    }
    return plain[hint]


@functools.cache
def instances(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: value_of(name, hints[name]) for name in kind.__struct_fields__})
