"""The paths of load-balanced routes, and what may stand in them. Pure.

A path is literal segments and `{name}`s: `/users/{id}/photo`. A name matches one whole segment.
"""

from __future__ import annotations

import re
from collections.abc import Collection

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
RESERVED = ("/execute", "/ping")
_LITERAL = re.compile(r"[A-Za-z0-9._~-]+")
_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class RouteError(ValueError):
    """A wrong path of a route; the message names the path and what is allowed."""


def check_path(path: object) -> tuple[str, ...]:
    """Returns the names in the path. Raises RouteError."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise RouteError(f'the path of a route must begin with "/", as "/users/{{id}}"; got {path!r:.100}')
    if path in RESERVED:
        raise RouteError(f"the paths {' and '.join(RESERVED)} are the worker's own; got {path!r}")
    names = []
    for segment in path[1:].split("/") if path != "/" else ():
        if found := _NAME.fullmatch(segment):
            names.append(found[1])
        elif not _LITERAL.fullmatch(segment):
            raise RouteError(
                "each part of a path must be letters, digits and . _ ~ -, or {name};"
                f" got {segment!r:.100} in {path!r:.100}"
            )
    if len(set(names)) < len(names):
        raise RouteError(f"the names in a path must differ; got {path!r:.100}")
    return tuple(names)


def check_names(path: str, names: Collection[str], parameters: Collection[str]) -> None:
    """Raises RouteError unless the function has a parameter for each name of its path."""
    for name in names:
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise RouteError(f"{path} needs a parameter {name} of its function; its parameters are: {known}")


def shape(method: str, path: str) -> tuple[str, str]:
    """Returns a value that is equal for two routes that would take the same requests."""
    return method, "/".join("{}" if _NAME.fullmatch(part) else part for part in path.split("/"))
