"""Routes of requests and the binding of arguments: from the path, the query, and the body. Pure.

GET /items/3?q=x    item(id: int, q: str = "")     id and q are converted as they are annotated
POST with JSON      an object's keys are parameters; a function with one parameter left takes any body
multipart           each part is a parameter, a file as bytes
other bodies        the one parameter that is left, as bytes
"""

from __future__ import annotations

import base64
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote

from stoker.app_values import ValueRefused, decode
from stoker.worker.errors import HandlerError

_NAME = re.compile(r"\{(\w+)\}")


class BadCall(HandlerError):
    """The call's arguments are not those of the function; `status` is that of a response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    module: str
    callable: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it was received: the names of headers in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def read_routes(values: Any) -> tuple[Route, ...]:
    """Raises BadCall."""
    try:
        return tuple(
            Route(*(str(one[name]) for name in ("method", "path", "module", "callable"))) for one in values
        )
    except (TypeError, KeyError):
        raise BadCall(422, "routes must be objects with method, path, module and callable") from None


def find(routes: Sequence[Route], method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Returns the route and what its path's names stand for. A route without names wins. Raises BadCall: 404,
    or 405 if only the method is wrong.
    """
    allowed = set()
    for route in sorted(routes, key=lambda one: one.path.count("{")):
        names = _matched(route.path, path)
        if names is None:
            continue
        if route.method == method or (method == "HEAD" and route.method == "GET"):
            return route, names
        allowed.add(route.method)
    if allowed:
        raise BadCall(405, f"{path} takes {', '.join(sorted(allowed))}, and not {method}")
    known = ", ".join(f"{one.method} {one.path}" for one in routes) or "none"
    raise BadCall(404, f"there is no route {method} {path}; there are: {known}")


def bind(function: Callable[..., Any], names: Mapping[str, str], request: Request) -> dict[str, Any]:
    """Returns the arguments of the function by name. Raises BadCall, 422, which names the parameter."""
    signature = inspect.signature(function)
    hints = _hints(function)
    arguments: dict[str, Any] = {
        name: _converted(name, text, hints.get(name)) for name, text in names.items()
    }
    repeated: dict[str, list[str]] = {}
    for name, text in parse_qsl(request.query, keep_blank_values=True):
        repeated.setdefault(name, []).append(text)
    for name, texts in repeated.items():
        if name in signature.parameters and name not in arguments:
            arguments[name] = _from_query(name, texts, hints.get(name))
    named = [one.name for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    arguments |= _from_body(request, [name for name in named if name not in arguments], hints)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise BadCall(422, f"{getattr(function, '__qualname__', function)}: {error}") from None
    return arguments


def bind_request(function: Callable[..., Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of the function for the request in a message of the worker. Raises BadCall."""
    request = message["request"]
    body = base64.b64decode(request["body"])
    return bind(
        function,
        message["names"],
        Request(request["method"], request["path"], request["query"], request["headers"], body),
    )


def _matched(pattern: str, path: str) -> dict[str, str] | None:
    wanted, parts = pattern.split("/"), path.split("/")
    if len(wanted) != len(parts):
        return None
    names = {}
    for one, part in zip(wanted, parts, strict=True):
        name = _NAME.fullmatch(one)
        if name is not None and part:
            names[name[1]] = unquote(part)
        elif one != part:
            return None
    return names


def _from_query(name: str, texts: Sequence[str], hint: Any) -> Any:
    for kind in (hint, *get_args(hint)):
        if kind is list or get_origin(kind) is list:
            item = next(iter(get_args(kind)), str)
            return [_converted(name, text, item) for text in texts]
    return _converted(name, texts[-1], hint)


def _converted(name: str, text: str, hint: Any) -> Any:
    """Converts a text of a path or a query to its annotation's type: int, float, bool; otherwise the text is
    kept.
    """
    kinds = [one for one in (hint, *get_args(hint)) if one in (int, float, bool)]
    if not kinds or (str in get_args(hint)):
        return text
    try:
        if kinds[0] is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return kinds[0](text)
    except (ValueError, KeyError):
        raise BadCall(422, f"{name} must be {kinds[0].__name__}; got {text!r:.100}") from None


def _from_body(request: Request, left: Sequence[str], hints: Mapping[str, Any]) -> dict[str, Any]:
    if not request.body:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return {name: value for name, value in _parts(request, hints).items() if name in left}
    if kind == "application/x-www-form-urlencoded" and b"=" in request.body:
        pairs = parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True)
        return {name: _converted(name, text, hints.get(name)) for name, text in pairs if name in left}
    raw = [name for name in left if hints.get(name) is bytes]
    if kind not in ("", "application/json", "application/x-www-form-urlencoded") and not kind.endswith(
        "+json"
    ):
        if len(raw) == 1 or len(left) == 1:
            return {(raw or list(left))[0]: request.body}
        raise BadCall(415, f"a body of {kind} needs one parameter of type bytes; there are {list(left)}")
    try:
        value = decode(json.loads(request.body), where="the body")
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, ValueRefused) else f"the body is not JSON: {error}"
        raise BadCall(422, what) from None
    if isinstance(value, dict) and not (len(left) == 1 and left[0] not in value):
        return value
    if len(left) == 1:
        return {left[0]: value}
    raise BadCall(422, f"the body must be an object with {', '.join(left) or 'nothing'}")


def _parts(request: Request, hints: Mapping[str, Any]) -> dict[str, Any]:
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode("latin-1", "replace")
    message = BytesParser(policy=HTTP).parsebytes(head + request.body)
    if not message.is_multipart():
        raise BadCall(422, "the body is not multipart/form-data")
    values: dict[str, Any] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        if not isinstance(name, str) or not isinstance(data, bytes):
            continue
        if part.get_filename() is not None or hints.get(name) is bytes:
            values[name] = data
        else:
            values[name] = _converted(name, data.decode("utf-8", "replace"), hints.get(name))
    return values


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the annotations; none if they name what is not there."""
    try:
        return get_type_hints(function)
    except Exception:  # an annotation is any expression
        return {}
