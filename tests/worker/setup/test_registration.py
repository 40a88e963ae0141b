"""A handler is found and its shape is known, or a sentence says what is wrong with it."""

from __future__ import annotations

import abc
import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker import worker
from stoker.worker import RegistrationError
from stoker.worker.setup.registration import load, register

HANDLERS = Path(__file__).resolve().parents[2] / "handlers"


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loading changes `sys.path` and `sys.modules`; the next test must not see it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def plain(job: Any) -> None: ...
async def coroutine(job: Any) -> None: ...
def generator(job: Any) -> Iterator[int]:
    yield 1


async def async_generator(job: Any) -> AsyncIterator[int]:
    yield 1


class Callable_:
    async def __call__(self, job: Any) -> None: ...


class WithGenerator:
    def run(self, job: Any) -> Iterator[int]:
        yield 1


class WithAsync:
    async def setup(self, device: Any) -> None: ...
    async def run(self, job: Any) -> None: ...


@pytest.mark.parametrize(
    ("target", "is_class", "is_async", "is_generator"),
    [
        (plain, False, False, False),
        (coroutine, False, True, False),
        (generator, False, False, True),
        (async_generator, False, True, True),
        (functools.partial(coroutine), False, True, False),
        (lambda job, seed=1, *rest, **more: None, False, False, False),
        (Callable_(), False, True, False),
        (WithGenerator, True, False, True),
        (WithAsync, True, True, False),
        (WithAsync().run, False, True, False),
        (print, False, False, False),
    ],
)
def test_every_kind_of_handler_is_known(
    target: Any, is_class: bool, is_async: bool, is_generator: bool
) -> None:
    found = register(target)
    assert (found.is_class, found.is_async, found.is_generator) == (is_class, is_async, is_generator)
    assert not found.aggregate


def nothing() -> None: ...
def two(job: Any, more: Any) -> None: ...
def named(job: Any, *, seed: int) -> None: ...


class NoRun: ...


class WithArguments:
    def __init__(self, weights: str, seed: int = 1) -> None: ...
    def run(self, job: Any) -> None: ...


class RunTakesNothing:
    def run(self) -> None: ...


class StaticRun:
    @staticmethod
    def run(job: Any) -> None: ...


class Abstract(abc.ABC):
    @abc.abstractmethod
    def load(self) -> None: ...
    def run(self, job: Any) -> int:
        return 1


class SetupTakesNothing:
    def setup(self) -> None: ...
    def run(self, job: Any) -> None: ...


class SetupYields:
    def setup(self, device: Any) -> Iterator[int]:
        yield 1

    def run(self, job: Any) -> None: ...


class SetupAlone:
    async def setup(self, device: Any) -> None: ...
    def run(self, job: Any) -> None: ...


class SetupIsData:
    setup = 5

    def run(self, job: Any) -> None: ...


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (7, "7, not a function or a class; a handler is something that takes one job"),
        (nothing, "nothing() must take the job, and nothing else"),
        (two, "must take the job, and nothing else"),
        (named, "must take the job, and nothing else"),
        (NoRun, "the class NoRun has no method run(self, job)"),
        (WithArguments, "WithArguments() takes weights; a handler class is made without arguments"),
        (RunTakesNothing, "RunTakesNothing.run(self) must take self and the job"),
        (StaticRun, "StaticRun.run must be a plain method run(self, job)"),
        (Abstract, "the class Abstract is abstract; it lacks load"),
        (SetupTakesNothing, "SetupTakesNothing.setup(self) must take self and the device"),
        (SetupYields, "SetupYields.setup must not be a generator"),
        (SetupAlone, "SetupAlone.setup is async, but SetupAlone.run is not"),
        (SetupIsData, "SetupIsData.setup must be a plain method setup(self, device)"),
    ],
)
def test_a_wrong_shape_is_refused_with_a_message(target: Any, message: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        register(target)
    assert message in str(caught.value)


def test_the_mark_sets_aggregate_on_a_function_a_class_or_its_method() -> None:
    @worker.handler(aggregate=True)
    def marked(job: Any) -> Iterator[int]:
        yield 1

    @worker.handler(aggregate=True)
    class Marked(WithGenerator): ...

    class MarkedBelow:
        @worker.handler(aggregate=True)
        def run(self, job: Any) -> Iterator[int]:
            yield 1

    targets: list[Callable[..., Any]] = [marked, Marked, MarkedBelow]
    assert [register(target).aggregate for target in targets] == [True, True, True]
    assert worker.handler(plain) is plain
    assert not register(plain).aggregate


def test_aggregate_needs_something_that_yields() -> None:
    def returns(job: Any) -> None: ...

    with pytest.raises(RegistrationError, match="yields nothing to aggregate"):
        register(worker.handler(aggregate=True)(returns))


def test_a_file_is_imported_and_its_folder_comes_first() -> None:
    found = load(f"{HANDLERS}/starting/own_models_package/handler.py:handler")
    assert found.target(None) == {name: f"the user's {name}" for name in ("models", "worker", "agent")}
    assert sys.path[0] == f"{HANDLERS}/starting/own_models_package"
    assert sys.modules["handler"].handler is found.target


def test_a_file_may_have_a_name_that_is_taken_or_no_name_for_python(tmp_path: Path) -> None:
    for file in ("json.py", "my-handler.py"):
        (tmp_path / file).write_text("def handler(job): return __name__")
        assert load(f"{tmp_path}/{file}:handler").name == "handler"
    assert sys.modules["json"].__name__ == "json"
    assert hasattr(sys.modules["json"], "dumps")


def test_an_attribute_may_lie_deeper(tmp_path: Path) -> None:
    (tmp_path / "nested.py").write_text("class A:\n class B:\n  def run(self, job): ...\n")
    assert load(f"{tmp_path}/nested.py:A.B").is_class


def test_a_module_is_loaded_by_its_name() -> None:
    assert not load("posixpath:basename").is_class


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("echo.py", "'echo.py' names no handler; write it as folder/file.py:attribute or module:attribute"),
        ("echo.py:", "names no handler"),
        ("echo.py:handler", "echo.py is not an absolute path"),
        ("/nowhere/echo.py:handler", "there is no file /nowhere/echo.py"),
        ("no_such_module:handler", "the module no_such_module cannot be imported: ModuleNotFoundError"),
        ("{}/outputs/echo.py:run", "echo.py has no run; it defines handler"),
        ("{}/starting/takes_no_job.py:handler", "handler() must take the job, and nothing else"),
        ("{}/starting/not_a_handler.py:handler", "handler is 7, not a function or a class"),
        ("{}/starting/exits_at_import.py:handler", "SystemExit: the handler called sys.exit(3)"),
        ("{}/starting/does_not_parse.py:handler", "does_not_parse.py cannot be imported: SyntaxError: "),
    ],
)
def test_a_handler_that_cannot_be_loaded_is_refused_with_a_message(spec: str, message: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        load(spec.format(HANDLERS))
    assert message in str(caught.value)
    assert "importlib" not in str(caught.value)
    assert "registration.py" not in str(caught.value)


def test_a_module_that_failed_is_not_left_half_made(tmp_path: Path) -> None:
    (tmp_path / "half_made.py").write_text("x = 1\n1 / 0\n")
    with pytest.raises(RegistrationError, match=r"half_made\.py cannot be imported: ZeroDivisionError"):
        load(f"{tmp_path}/half_made.py:handler")
    assert "half_made" not in sys.modules
