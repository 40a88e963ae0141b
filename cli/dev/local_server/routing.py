"""The paths of the local server. Pure.

    POST     /gpu_worker/runsync            a file with one function:  {"input": {...}}
    POST     /gpu_worker/caption/runsync    a file with several functions, or methods of a class
    <METHOD> /lb_worker/items/{id}          a route of an API: the request as it is

Every file has its own paths, which begin with its own below the app's folder, without `.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stoker.cli.dev.project import AppEndpoint, Project
from stoker.client.apps.routes import shape
from stoker.client.apps.scanned import Function, Problem, Route


@dataclass(frozen=True, slots=True)
class LocalRoute:
    """A route of the local server. `route` is None for a function of a queue endpoint."""

    method: str
    path: str
    served: AppEndpoint
    function: Function
    route: Route | None = None

    @property
    def summary(self) -> str:
        return self.function.summary or self.served.endpoint.summary


def local_routes(project: Project) -> tuple[tuple[LocalRoute, ...], tuple[Problem, ...]]:
    """Returns the routes in the order of the files, and a problem for each route whose path another route
    has."""
    taken: dict[tuple[str, str], LocalRoute] = {}
    problems = []
    for one in _every(project.endpoints):
        other = taken.setdefault(shape(one.method, one.path), one)
        if other is not one:
            file, where = one.served.endpoint.path, other.served.endpoint
            problems.append(
                Problem(
                    file,
                    one.function.line,
                    f"{one.method} {one.path} is also the path of {other.function.qualname} in"
                    f" {where.path}, line {other.function.line}; only that one is served",
                )
            )
    return tuple(taken.values()), tuple(problems)


def _every(endpoints: Iterable[AppEndpoint]) -> Iterator[LocalRoute]:
    endpoints = list(endpoints)
    in_file = Counter(one.endpoint.prefix for one in endpoints for _ in one.endpoint.functions)
    last_names = Counter(
        (one.endpoint.prefix, function.qualname.rpartition(".")[2])
        for one in endpoints
        for function in one.endpoint.functions
    )
    for served in endpoints:
        prefix = served.endpoint.prefix
        for function in served.endpoint.functions:
            name = function.qualname.rpartition(".")[2]
            if last_names[prefix, name] > 1:
                name = function.qualname
            middle = f"/{name}" if in_file[prefix] > 1 else ""
            yield LocalRoute("POST", f"/{prefix}{middle}/runsync", served, function)
        for route in served.endpoint.routes:
            yield LocalRoute(route.method, f"/{prefix}{route.path}", served, route.function, route)
