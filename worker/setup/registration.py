"""The registration of a handler: loads it and checks its shape, so that mistakes are reported before the
first job.

A handler is named `folder/file.py:attribute` (an absolute path: the user's own code) or
`module.name:attribute` (an installed distribution). The folder of a file is put first in `sys.path`: the
user's own modules win, whatever they are called. Nothing here runs `setup` or a job.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from stoker.worker.errors import RegistrationError, describe
from stoker.worker.sdk import OPTIONS, HandlerOptions

_FALLBACK_NAME = "__stoker_handler__"

MODIFIER = "concurrency_modifier"


@dataclass(frozen=True, slots=True)
class Registration:
    """A handler that was loaded and has the right shape."""

    target: Any
    name: str
    is_class: bool
    is_async: bool
    is_generator: bool
    aggregate: bool
    modifier: Callable[[int], object] | None = None
    """The argument of `handler(concurrency_modifier=…)`; a class may have a method of that name instead."""


def load(spec: str) -> Registration:
    """Imports and checks the handler that `spec` names. Raises RegistrationError."""
    source, _, attribute = spec.rpartition(":")
    if not source or not attribute:
        raise RegistrationError(
            f"{spec!r} names no handler; write it as folder/file.py:attribute or module:attribute"
        )
    module = _import_file(source) if source.endswith(".py") else _import_module(source)
    try:
        target: Any = module
        for part in attribute.split("."):
            target = getattr(target, part)
    except AttributeError:
        raise RegistrationError(f"{source} has no {attribute}{_defined_names(module)}") from None
    return register(target, attribute)


def register(target: Any, name: str = "") -> Registration:
    """Checks a handler. Raises RegistrationError."""
    name = name or getattr(target, "__name__", type(target).__name__)
    if not callable(target):
        raise RegistrationError(
            f"{name} is {target!r:.80}, not a function or a class; a handler is something that takes one job"
        )
    is_class = isinstance(target, type)
    function = _run_of(target, name) if is_class else target
    _require_arguments(function, name if not is_class else f"{name}.run", "the job", bound=not is_class)
    plain = _function_of(function)
    is_generator = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)
    is_async = inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
    options = _options(target, function)
    if options.aggregate and not is_generator:
        raise RegistrationError(f"{name} is marked aggregate=True, but it yields nothing to aggregate")
    if is_class:
        _check_setup(target, name, is_async)
    modifier = options.concurrency_modifier
    _check_modifier(modifier, getattr(target, MODIFIER, None) if is_class else None, target, name)
    return Registration(target, name, is_class, is_async, is_generator, options.aggregate, modifier)


def _options(target: Any, function: Callable[..., Any]) -> HandlerOptions:
    """Returns the options of the mark, which is on the class or on its method."""
    for marked in (target, function):
        options = getattr(marked, OPTIONS, None)
        if isinstance(options, HandlerOptions):
            return options
    return HandlerOptions()


def _run_of(target: type, name: str) -> Callable[..., Any]:
    run: Callable[..., Any] | None = getattr(target, "run", None)
    if run is None:
        raise RegistrationError(f"the class {name} has no method run(self, job)")
    if not inspect.isfunction(inspect.getattr_static(target, "run")):
        raise RegistrationError(f"{name}.run must be a plain method run(self, job)")
    if inspect.isabstract(target):
        missing = ", ".join(sorted(getattr(target, "__abstractmethods__", ())))
        raise RegistrationError(f"the class {name} is abstract; it lacks {missing}")
    required = _required(target)
    if required:
        raise RegistrationError(
            f"{name}() takes {', '.join(required)}; a handler class is made without arguments, "
            "and its setup(self, device) does the rest"
        )
    return run


def _check_setup(target: type, name: str, is_async: bool) -> None:
    setup = getattr(target, "setup", None)
    if setup is None:
        return
    if not inspect.isfunction(setup):
        raise RegistrationError(f"{name}.setup must be a plain method setup(self, device)")
    _require_arguments(setup, f"{name}.setup", "the device", bound=False)
    if inspect.isgeneratorfunction(setup) or inspect.isasyncgenfunction(setup):
        raise RegistrationError(f"{name}.setup must not be a generator")
    if inspect.iscoroutinefunction(setup) and not is_async:
        raise RegistrationError(f"{name}.setup is async, but {name}.run is not")


def _check_modifier(marked: Any, own: Any, target: Any, name: str) -> None:
    """Checks the modifier: `marked` stands in the mark, `own` in the class; None where there is none."""
    if marked is not None and own is not None:
        raise RegistrationError(f"{name} has a {MODIFIER} and is marked with another; one of them must go")
    modifier = marked if own is None else own
    if modifier is None:
        return
    label = MODIFIER if own is None else f"{name}.{MODIFIER}"
    if not callable(modifier):
        raise RegistrationError(f"{label} is {modifier!r:.80}, not a function")
    is_method = own is not None and inspect.isfunction(inspect.getattr_static(target, MODIFIER))
    _require_arguments(modifier, label, "the current number", bound=not is_method)
    if inspect.iscoroutinefunction(_function_of(modifier)):
        raise RegistrationError(f"{label} must not be async: it is called between two jobs")


def _require_arguments(function: Callable[..., Any], name: str, what: str, *, bound: bool) -> None:
    """Raises RegistrationError unless a function can be called with exactly one argument (and self, where the
    function is not bound).
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # written in C, and does not tell
    arguments = (None,) if bound else (None, None)
    try:
        signature.bind(*arguments)
    except TypeError:
        wanted = what if bound else f"self and {what}"
        parameters = signature.replace(return_annotation=signature.empty)
        raise RegistrationError(f"{name}{parameters} must take {wanted}, and nothing else") from None


def _required(target: type) -> list[str]:
    """Returns the arguments without which the class cannot be made."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (ValueError, TypeError):
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in optional]


def _function_of(target: Any) -> Any:
    """Returns the function that is async or a generator, or not: for an object with __call__, that method."""
    if inspect.isroutine(target) or hasattr(target, "func"):  # the latter: functools.partial
        return target
    return type(target).__call__


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:  # a module may do anything when it is imported, and call sys.exit
        raise RegistrationError(f"the module {name} cannot be imported: {describe(error)}") from error


def _import_file(path: str) -> ModuleType:
    if not os.path.isabs(path):
        raise RegistrationError(f"{path} is not an absolute path")
    if not os.path.isfile(path):
        raise RegistrationError(f"there is no file {path}")
    folder, file = os.path.split(path)
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    name = file.removesuffix(".py")
    if not name.isidentifier() or name in sys.modules:
        name = _FALLBACK_NAME
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # a name that ends in .py always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # under the name by which the user's other modules may import it
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # as above
        sys.modules.pop(name, None)
        raise RegistrationError(f"{file} cannot be imported: {describe(error)}") from error
    return module


def _defined_names(module: ModuleType) -> str:
    """Lists the names that the file does define, for an author who mistyped."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return f"; it defines {', '.join(sorted(own)[:10])}" if own else ""
