"""Results of a scan: endpoints with their functions, parameters and routes, and problems. Pure data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from stoker.client.apps.definition import Definition


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a file. `text` is the line of source."""

    path: str
    line: int
    message: str
    text: str = ""

    def __str__(self) -> str:
        source = f"\n    {self.text.strip()}" if self.text.strip() else ""
        return f"{self.path}, line {self.line}: {self.message}{source}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function. `annotation` is its source, "" if there is none. `default` is None if it is
    not a literal."""

    name: str
    annotation: str = ""
    required: bool = True
    default: Any = None


@dataclass(frozen=True, slots=True)
class Function:
    """A function, or a method as `Model.embed`. `summary` is the first line of its docstring. `takes_any`: it
    has `**kwargs`."""

    qualname: str
    line: int
    summary: str = ""
    parameters: tuple[Parameter, ...] = ()
    generator: bool = False
    takes_any: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    function: Function


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that a scan found. `target` is the decorated function or class, or the variable of an API.
    `definition` is None if an option is not a literal, which `dynamic` names, or if one is wrong, which is a
    problem of the scan. `functions` are what a queue endpoint can call."""

    module: str
    path: str
    target: str
    line: int
    kind: Literal["queue", "load_balanced"]
    definition: Definition | None
    summary: str = ""
    dynamic: tuple[str, ...] = ()
    functions: tuple[Function, ...] = ()
    routes: tuple[Route, ...] = ()

    @property
    def name(self) -> str:
        """The given one, else one that is made of the module's and the target's."""
        name = self.definition.name if self.definition is not None else ""
        return name or default_name(self.module, self.target)

    @property
    def prefix(self) -> str:
        """The path of its file without the ending, as `03_mixed/cpu_worker`."""
        return self.path.removesuffix(".py")

    @property
    def folder(self) -> str:
        """The folder of its file, "" for that of the app."""
        return self.path.rpartition("/")[0]


def default_name(module: str, target: str) -> str:
    """Returns `03-mixed-cpu-worker-model` for `03_mixed.cpu_worker` and `Model`; at most 100 characters."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{module}-{target}".lower()).strip("-")
    return name[-100:].strip("-")
