"""Broken copies of a module, for tests that must notice them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(name: str, path: Path, source: str) -> ModuleType:
    """A module made from this text, as if it stood at `path`; it is not left among the loaded ones."""
    spec = importlib.util.spec_from_loader(name, loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    finally:
        del sys.modules[name]
    return module


def mutant(original: ModuleType, old: str, new: str) -> ModuleType:
    """The module with one piece of its text replaced, which must stand there once."""
    path = Path(original.__file__ or "")
    source = path.read_text(encoding="utf-8")
    assert source.count(old) == 1, f"the text to mutate is there {source.count(old)} times: write it anew"
    return load(f"mutant_of_{path.stem}", path, source.replace(old, new))
