"""`@endpoint(...)`: which functions run on the platform's workers, and with what.

    from stoker.client import endpoint

    @endpoint(name="caption", gpu="NVIDIA L4", dependencies=["pillow"])
    def caption(image: bytes) -> str: ...

    api = endpoint(name="shop", cpu=2)

    @api.get("/items/{id}")
    def item(id: int) -> dict: ...

A decorated function or class is returned as it is: it can be imported, tested and called here, and
`caption.remote(image)` calls it on a worker (`by_name`). The options are in its attribute
`__stoker_endpoint__`. Of a class, the public methods can be called; it is created without arguments, once in
each worker. Raises DefinitionError for each wrong option, with a sentence that names the option, its value
and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import isfunction
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from stoker.client.apps.definition import MARK, Definition, DefinitionError
from stoker.client.apps.routes import RouteError, check_path, shape

T = TypeVar("T")
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class RemoteFunction(Protocol[P, R_co]):
    """A decorated function. `remote` calls it on a worker, and returns its result."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def remote(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class Declaration:
    """The object that `endpoint(...)` returns: the decorator of a function or a class, or of the routes of an
    API."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.routes: list[tuple[str, str, Callable[..., Any]]] = []

    @overload
    def __call__(self, target: type[T]) -> type[T]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, target: Callable[P, R_co]) -> RemoteFunction[P, R_co]: ...

    def __call__(self, target: Any) -> Any:
        if not callable(target):
            raise DefinitionError(f"endpoint decorates a function or a class; got {target!r:.100}")
        setattr(target, MARK, self.definition)
        for function in _functions(target):
            function.remote = partial(_call_by_name, function)  # type: ignore[attr-defined]
        return target

    def get(self, path: str) -> Callable[[T], T]:
        return self._route("GET", path)

    def post(self, path: str) -> Callable[[T], T]:
        return self._route("POST", path)

    def put(self, path: str) -> Callable[[T], T]:
        return self._route("PUT", path)

    def delete(self, path: str) -> Callable[[T], T]:
        return self._route("DELETE", path)

    def patch(self, path: str) -> Callable[[T], T]:
        return self._route("PATCH", path)

    def _route(self, method: str, path: str) -> Callable[[T], T]:
        try:
            check_path(path)
        except RouteError as error:
            raise DefinitionError(str(error)) from None

        def declare(target: T) -> T:
            if not callable(target):
                raise DefinitionError(f"a route decorates a function; got {target!r:.100}")
            if any(shape(method, path) == shape(known, other) for known, other, _ in self.routes):
                raise DefinitionError(f"{method} {path} is declared twice")
            self.routes.append((method, path, target))
            return target

        return declare


def endpoint(
    *,
    name: str = "",
    gpu: bool | str | Sequence[str] | None = None,
    cpu: bool | int | str | Sequence[str] | None = None,
    gpu_count: int = 1,
    workers: int | tuple[int, int] = (0, 3),
    dependencies: Sequence[str] = (),
    system_dependencies: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    idle_timeout: int = 60,
    execution_timeout_ms: int = 0,
    volume: str = "",
    max_concurrency: int = 1,
) -> Declaration:
    """Declares an endpoint, and returns the decorator of its function, class or routes.

    `gpu`: True for any GPU, a name such as "NVIDIA L4", or several, best first. `cpu`: True, a number of
    virtual CPUs, or an instance such as "cpu3c-8-16". Without both, a GPU is used where any node has one.
    `workers`: the fewest and the most, or only the most. `dependencies` are pip's requirements;
    `system_dependencies` are packages of the worker's container. `env`: the variables of its workers.
    `idle_timeout`: seconds until an idle worker is stopped. `volume`: the id of a network volume.
    `max_concurrency`: the calls that a worker runs at once. Raises DefinitionError.
    """
    arguments = dict(locals())
    return Declaration(Definition.of({key: value for key, value in arguments.items() if value is not None}))


def _functions(target: Any) -> list[Callable[..., Any]]:
    """Returns the functions that can be called at the endpoint: itself, or the public methods of a class."""
    if not isinstance(target, type):
        return [target]
    found = ((name, getattr(value, "__func__", value)) for name, value in vars(target).items())
    return [value for name, value in found if isfunction(value) and not name.startswith("_")]


def _call_by_name(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    from stoker.client.apps.by_name import call  # a worker, which imports the app, has no httpx2

    return call(function, args, kwargs)
