"""The endpoints of one module, read from its source. Pure: the module is not imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from stoker.client.apps.definition import Definition, DefinitionError
from stoker.client.apps.routes import METHODS, RouteError, check_names, check_path, shape
from stoker.client.apps.scanned import Endpoint, Function, Parameter, Problem, Route

_HOMES = ("stoker.client", "stoker.client.apps.declaration")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_name(path: str) -> str:
    """Returns the module's name: `03_mixed.cpu_worker` for `03_mixed/cpu_worker.py`, the package's for an
    `__init__.py`."""
    name = path.removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")


def scan_source(text: str, path: str) -> tuple[tuple[Endpoint, ...], tuple[Problem, ...]]:
    """Returns the endpoints of the module at `path`, with slashes, below its app's folder; and its
    problems."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return (), (syntax_problem(error, path),)
    module = _Module(tree, text.split("\n"), path)  # a form feed ends no line
    endpoints = tuple(module.endpoints())
    return endpoints, tuple(module.problems)


def syntax_problem(error: BaseException, path: str) -> Problem:
    if isinstance(error, SyntaxError):
        return Problem(path, error.lineno or 1, f"syntax error: {error.msg}", error.text or "")
    return Problem(path, 1, f"it cannot be parsed: {error or type(error).__name__}")


class _Module:
    def __init__(self, tree: ast.Module, lines: list[str], path: str) -> None:
        self._tree, self._lines, self._path = tree, lines, path
        self._declares = _names_of_endpoint(tree)
        self._variables: dict[str, ast.Call] = {}
        self._routes: dict[str, list[Route]] = {}
        self._used: set[str] = set()
        self.problems: list[Problem] = []

    def endpoints(self) -> Iterator[Endpoint]:
        for node in self._tree.body:
            if (named := self._assigned(node)) is not None:
                self._variables[named[0]] = named[1]
            elif isinstance(node, _Function | ast.ClassDef):
                yield from self._decorated(node)
        for variable, routes in self._routes.items():
            if not routes:
                continue  # their errors are reported already
            call = self._variables[variable]
            yield self._endpoint(variable, call, call.lineno, "load_balanced", routes=tuple(routes))
        for variable in self._variables.keys() - self._used:
            self._complain(
                self._variables[variable],
                f'{variable} has no routes; write @{variable}.get("/path") over a function',
            )

    def _assigned(self, node: ast.stmt) -> tuple[str, ast.Call] | None:
        """Returns the name and the call of `api = endpoint(...)`."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if self._is_ours(
                call.func
            ):
                return name, call
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as call) if self._is_ours(
                call.func
            ):
                return name, call
        return None

    def _is_ours(self, called: ast.expr) -> bool:
        return ast.unparse(called) in self._declares

    def _decorated(self, node: _Function | ast.ClassDef) -> Iterator[Endpoint]:
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=variable), attr=method)) if (
                    variable in self._variables
                ):
                    self._add_route(variable, method.upper(), decorator, node)
                case ast.Call() if self._is_ours(decorator.func):
                    yield self._queue(decorator, node)
                case ast.Name(id=variable) if variable in self._variables:
                    yield self._queue(self._use(variable), node)
                case _ if self._is_ours(decorator):
                    self._complain(decorator, "write @endpoint() with brackets")

    def _use(self, variable: str) -> ast.Call:
        self._used.add(variable)
        return self._variables[variable]

    def _queue(self, call: ast.Call, node: _Function | ast.ClassDef) -> Endpoint:
        if isinstance(node, ast.ClassDef):
            functions = tuple(
                self._function(one, f"{node.name}.{one.name}", bound=True)
                for one in node.body
                if isinstance(one, _Function) and not one.name.startswith("_")
            )
            if not functions:
                self._complain(node, f"the class {node.name} has no public method that could be called")
        else:
            functions = (self._function(node, node.name, bound=False),)
        return self._endpoint(
            node.name, call, node.lineno, "queue", functions=functions, summary=_summary(node)
        )

    def _add_route(
        self, variable: str, method: str, decorator: ast.Call, node: _Function | ast.ClassDef
    ) -> None:
        self._use(variable)
        routes = self._routes.setdefault(variable, [])
        if method not in METHODS or isinstance(node, ast.ClassDef):
            methods = ", ".join(f"@{variable}.{one.lower()}" for one in METHODS)
            self._complain(decorator, f"a route is a function under one of {methods}")
            return
        match decorator.args:
            case [ast.Constant(value=str(path))]:
                pass
            case _:
                self._complain(
                    decorator, f'a route has its path as a text, as @{variable}.get("/users/{{id}}")'
                )
                return
        function = self._function(node, node.name, bound=False)
        try:
            check_names(path, check_path(path), [one.name for one in function.parameters])
        except RouteError as error:
            self._complain(decorator, str(error))
            return
        if any(shape(method, path) == shape(other.method, other.path) for other in routes):
            self._complain(decorator, f"{method} {path} is declared twice")
            return
        routes.append(Route(method, path, function))

    def _endpoint(self, target: str, call: ast.Call, line: int, kind: Any, **more: Any) -> Endpoint:
        options, dynamic = _options(call)
        definition = None
        try:
            checked = Definition.of(options)
            definition = None if dynamic else checked
        except DefinitionError as error:
            self._complain(call, str(error))
        if call.args:
            self._complain(call, "the options of endpoint are given by name, as endpoint(name=...)")
        return Endpoint(
            module_name(self._path), self._path, target, line, kind, definition, dynamic=dynamic, **more
        )

    def _function(self, node: _Function, qualname: str, *, bound: bool) -> Function:
        arguments = node.args
        if arguments.posonlyargs or arguments.vararg is not None:
            self._complain(node, f"{qualname} takes arguments without a name; those of a call have names")
        every = arguments.args[1:] if bound and not _is_static(node) else arguments.args
        defaults: list[ast.expr | None] = [None] * (len(every) - len(arguments.defaults))
        pairs: list[tuple[ast.arg, ast.expr | None]] = list(
            zip(every, [*defaults, *arguments.defaults], strict=False)
        )
        pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        parameters = tuple(_parameter(*pair) for pair in pairs)
        takes_any = arguments.kwarg is not None
        return Function(qualname, node.lineno, _summary(node), parameters, _yields(node), takes_any)

    def _complain(self, node: ast.stmt | ast.expr, message: str) -> None:
        text = self._lines[node.lineno - 1] if node.lineno <= len(self._lines) else ""
        self.problems.append(Problem(self._path, node.lineno, message, text))


def _names_of_endpoint(tree: ast.Module) -> set[str]:
    """Returns the names by which the module may call `endpoint`: its own or a dotted one, as it was
    imported."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in _HOMES:
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "endpoint"}
        elif isinstance(node, ast.ImportFrom) and node.module == "stoker":
            names |= {
                f"{alias.asname or alias.name}.endpoint" for alias in node.names if alias.name == "client"
            }
        elif isinstance(node, ast.Import):
            names |= {
                f"{alias.asname or alias.name}.endpoint" for alias in node.names if alias.name in _HOMES
            }
    return names


def _options(call: ast.Call) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the literal options, and the names of the others; "**" stands for unpacked ones."""
    options: dict[str, Any] = {}
    dynamic = []
    for keyword in call.keywords:
        try:
            if keyword.arg is None:
                options |= ast.literal_eval(keyword.value)
            else:
                options[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            dynamic.append(keyword.arg or "**")
    return options, tuple(dynamic)


def _parameter(argument: ast.arg, default: ast.expr | None) -> Parameter:
    annotation = ast.unparse(argument.annotation) if argument.annotation is not None else ""
    if default is None:
        return Parameter(argument.arg, annotation)
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        value = None
    return Parameter(argument.arg, annotation, required=False, default=value)


def _is_static(node: _Function) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)


def _summary(node: _Function | ast.ClassDef) -> str:
    lines = (ast.get_docstring(node) or "").strip().splitlines()
    return lines[0].strip() if lines else ""


def _yields(node: _Function) -> bool:
    """Returns whether the function's own body has a yield, not that of a function inside it."""
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for child in node.body for one in _own(child))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, _Function | ast.Lambda | ast.ClassDef):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _own(child)
