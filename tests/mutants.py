"""Broken copies of a module, for tests that must notice them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

settings.register_profile(
    "first failure", settings.get_profile("full"), phases=[Phase.explicit, Phase.generate]
)


def load(name: str, path: Path, source: str) -> ModuleType:
    """A module made from this text, as if it stood at `path`; it is not left among the loaded ones."""
    spec = importlib.util.spec_from_loader(name, loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(_compiled(source, str(path)), module.__dict__)
    finally:
        del sys.modules[name]
    return module


@functools.cache
def _compiled(source: str, path: str) -> CodeType:
    """The tests of a module are loaded once for each mutant."""
    return compile(source, path, "exec")


def examples_last(module: ModuleType) -> list[Any]:
    """Its tests, those that draw examples last: the first that fails is enough."""
    found = [test for name, test in vars(module).items() if name.startswith("test_")]
    return sorted(found, key=lambda test: getattr(test, "is_hypothesis_test", False))


@contextlib.contextmanager
def first_failure() -> Iterator[None]:
    """Tests that are loaded and run in here stop at the first example that fails: none is made smaller."""
    before = settings.get_current_profile_name()
    settings.load_profile("first failure")
    try:
        yield
    finally:
        settings.load_profile(before)


def mutant(original: ModuleType, old: str, new: str) -> ModuleType:
    """The module with one piece of its text replaced, which must stand there once."""
    path = Path(original.__file__ or "")
    source = path.read_text(encoding="utf-8")
    assert source.count(old) == 1, f"the text to mutate is there {source.count(old)} times: write it anew"
    return load(f"mutant_of_{path.stem}", path, source.replace(old, new))


def survives(path: Path, module: ModuleType) -> bool:
    """Whether every test of this file passes with the module's names in the place of the original ones."""
    with first_failure():
        tests = load(f"tests_of_{path.stem}", path, path.read_text())
        for name in vars(module):
            if hasattr(tests, name) and not name.startswith("_"):
                setattr(tests, name, getattr(module, name))
        try:
            for test in examples_last(tests):
                for arguments in _cases(test):
                    test(**arguments)
        except (Exception, pytest.fail.Exception):
            return False
    return True


def _cases(test: Any) -> Iterator[dict[str, Any]]:
    """The arguments with which pytest would call the test."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    for rows in itertools.product(*(mark.args[1] for mark in marks)):
        arguments: dict[str, Any] = {}
        for mark, row in zip(marks, rows, strict=True):
            names = mark.args[0]
            arguments |= {names: row} if isinstance(names, str) else dict(zip(names, row, strict=True))
        yield arguments
