"""The code of a request or of an endpoint's version, and the call: read, checked and unpacked. Pure.

    {"bundle": {"hash", "packed" | "url"}, "folder", "dependencies", "system_dependencies"}    Code
    {"function": {"module", "callable"}, "kwargs"}                                             FunctionCall

A bundle is base64 of compressed JSON, a path to each source text. Its hash is compared before any of it is
used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from stoker.worker.errors import HandlerError

VARIABLE = "STOKER_FUNCTIONS"
BYTES_MAX = 8 << 20
"""Of all source of a bundle."""

_JSON_MAX = 6 * BYTES_MAX
"""Of the JSON, in which a character may be escaped."""

PACKED_MAX = 2 * BYTES_MAX
_REQUIREMENT = re.compile(r"[A-Za-z0-9][^\x00-\x1f]*")


class CodeRefused(HandlerError):
    """A request for a function that is wrong; the message names the field."""


@dataclass(frozen=True, slots=True)
class Code:
    """The code of an app. `packed` is "" if the bundle is at `url`. `folder` is that of the entry, "" for the
    app's own."""

    hash: str
    packed: str
    url: str
    folder: str
    dependencies: tuple[str, ...]
    system_dependencies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function. `callable` is a function, or a class and its method: `Model.embed`."""

    module: str
    callable: str
    kwargs: Mapping[str, Any]


def read_code(values: Mapping[str, Any]) -> Code:
    """Raises CodeRefused."""
    bundle = values.get("bundle")
    if not isinstance(bundle, dict) or not isinstance(bundle.get("hash"), str):
        raise CodeRefused("bundle must be an object with a hash, and with packed or url")
    packed, url = bundle.get("packed", ""), bundle.get("url", "")
    if not (isinstance(packed, str) and isinstance(url, str) and bool(packed) != bool(url)):
        raise CodeRefused("bundle must have either packed or url, as a text")
    folder = values.get("folder", "")
    if not isinstance(folder, str) or (folder and not _is_below(folder)):
        raise CodeRefused(f"folder must be a path below the app; got {folder!r:.100}")
    dependencies = _texts(values, "dependencies")
    return Code(bundle["hash"], packed, url, folder, dependencies, _texts(values, "system_dependencies"))


def read_call(values: Mapping[str, Any]) -> FunctionCall:
    """Raises CodeRefused."""
    match values.get("function"), values.get("kwargs", {}):
        case {"module": str(module), "callable": str(name)}, dict(kwargs):
            return FunctionCall(module, name, kwargs)
    raise CodeRefused("function must be an object with module and callable, and kwargs an object")


def version_content(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Returns the content of a deployed endpoint's variables; None at a live endpoint. Raises CodeRefused."""
    parts: list[str] = []
    while (part := environ.get(f"{VARIABLE}_{len(parts)}")) is not None:
        parts.append(part)
    if not parts:
        if environ.get(f"{VARIABLE}_LIVE"):
            return None
        raise CodeRefused(f"this endpoint has no functions: neither {VARIABLE}_0 nor {VARIABLE}_LIVE is set")
    try:
        content = json.loads("".join(parts))
    except ValueError as error:
        raise CodeRefused(f"the variables {VARIABLE}_n are not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CodeRefused(f"the variables {VARIABLE}_n must hold an object")
    return content


def deployed_call(functions: list[Mapping[str, str]], input_value: Any) -> FunctionCall:
    """Returns the call of a deployed endpoint: its input is the parameters, and `method` if a class has
    several methods. Raises CodeRefused.
    """
    if not isinstance(input_value, dict):
        raise CodeRefused("the input must be an object with the parameters of the function")
    if len(functions) == 1:
        (only,) = functions
        return FunctionCall(only["module"], only["callable"], input_value)
    methods = {one["callable"].rpartition(".")[2]: one for one in functions}
    found = methods.get(input_value.get("method", "")) if isinstance(input_value.get("method"), str) else None
    if found is None:
        raise CodeRefused(
            f"method must be one of {', '.join(sorted(methods))}; got {input_value.get('method')!r:.100}"
        )
    kwargs = {name: value for name, value in input_value.items() if name != "method"}
    return FunctionCall(found["module"], found["callable"], kwargs)


def unpack(packed: str, wanted: str) -> dict[str, str]:
    """Returns the source by path. Raises CodeRefused if the source does not have the hash `wanted`, or is too
    large.
    """
    if len(packed) > PACKED_MAX:
        raise CodeRefused(f"the bundle has {len(packed)} characters; at most {PACKED_MAX} are allowed")
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(base64.b64decode(packed, validate=True), _JSON_MAX)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise CodeRefused(f"the bundle cannot be unpacked: {error}") from None
    if inflater.unconsumed_tail:
        raise CodeRefused(f"the source is over {BYTES_MAX >> 20} MiB")
    if not inflater.eof:
        raise CodeRefused("the bundle cannot be unpacked: its end is missing")
    if hashlib.sha256(data).hexdigest() != wanted:
        raise CodeRefused("the source is not that of its hash")
    return _checked_files(json.loads(data))


def _checked_files(files: Any) -> dict[str, str]:
    if not isinstance(files, dict) or not all(isinstance(one, str) for one in files.values()):
        raise CodeRefused("the bundle must map paths to texts")
    for path in files:
        if not path.endswith(".py") or not _is_below(path):
            raise CodeRefused(f"the bundle has {path!r:.100}, which is not a path of a module")
    if sum(len(one.encode("utf-8", "surrogatepass")) for one in files.values()) > BYTES_MAX:
        raise CodeRefused(f"the source is over {BYTES_MAX >> 20} MiB")
    return files


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return (
        bool(parts)
        and not path.startswith("/")
        and ".." not in parts
        and path == "/".join(parts)
        and path.isprintable()
    )


def _texts(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    requirements = values.get(name, [])
    if isinstance(requirements, list) and all(
        isinstance(one, str) and len(one) < 1000 and _REQUIREMENT.fullmatch(one) for one in requirements
    ):
        return tuple(requirements)
    raise CodeRefused(f"{name} must be a list of requirements; got {requirements!r:.200}")
