"""Facts for the case of a job that fails: what its worker ran on, the files it got, and where it failed.

    {"python": "3.12.3", "libraries": {"torch": "2.7.0"}, "cuda": "12.6", "source": {"caption.py": "6b86…"},
     "environment": ["PATH"], "settings": {"STOKER_PIPELINE": "flux-mini"}, "scratch": "/…/1",
     "files": [{"url": "https://…/a.png", "size": 9, "sha256": "…"}],
     "raised": {"type": "builtins.ValueError", "file": "caption.py", "function": "handler", "line": 7}}

A worker sends them when the attempt begins, after each fetch, and when the handler raises; the last ones
count, so that of a worker that is killed they are known, too. Left out, since they may be secrets, are
queries of URLs, messages, and the values of variables, but for those that choose a pipeline and its
speed-ups, and the id of a container's image. Paths of source files begin at the handler's folder.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any

_LIBRARIES = ("torch", "diffusers", "transformers", "safetensors", "numpy", "PIL", "av", "runpod")
_SETTINGS = ("STOKER_PIPELINE", "STOKER_PROFILE", "STOKER_ATTENTION", "STOKER_IMAGE_ID")
_NAMES_MOST = 200
_FILES_MOST = 200
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_NOT_OWN = (f"{_OURS}/", os.path.dirname(os.__file__) + "/", "<")
_INSTALLED = ("/site-packages/", "/dist-packages/")
_hashed: dict[str, str] = {}


def process_facts() -> dict[str, Any]:
    """Returns what this process runs on. A source file is read once: it may change after it was imported."""
    torch = sys.modules.get("torch")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "libraries": _versions(),
        "cuda": getattr(getattr(torch, "version", None), "cuda", None),
        "source": source_digests(),
        "environment": sorted(os.environ)[:_NAMES_MOST],
        "settings": {name: os.environ[name][:200] for name in _SETTINGS if name in os.environ},
    }


def _versions() -> dict[str, str]:
    """Returns the versions of the libraries that were imported, of those that matter to models."""
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in _LIBRARIES}
    return {name: str(version)[:100] for name, version in found.items() if version is not None}


def source_digests() -> dict[str, str]:
    """Returns the sha256 of each source file of the user's own that was imported, by its path."""
    return _source_digests(len(sys.modules))


@lru_cache(maxsize=1)
def _source_digests(_modules: int) -> dict[str, str]:
    """Returns the same, kept until another module is imported: with torch there are thousands."""
    files = {_file_of(module) for module in tuple(sys.modules.values())}
    own = sorted(file for file in files if is_own(file))[:_NAMES_MOST]
    return {relative(file): digest for file in own if (digest := _digest(file))}


def _file_of(module: Any) -> str:
    file = getattr(module, "__dict__", {}).get("__file__")  # an attribute may be imported when it is read
    return file if isinstance(file, str) else ""


def is_own(file: str) -> bool:
    """Returns whether a source file is the user's own: neither installed nor one of Stoker's."""
    if not file.endswith(".py") or file.startswith(_NOT_OWN):
        return False
    return not any(folder in file for folder in _INSTALLED)


def relative(file: str) -> str:
    """Returns the path below the handler's folder, which is first in `sys.path`; a file of another folder
    has its name alone."""
    folder = f"{sys.path[0]}/" if sys.path else ""
    return file.removeprefix(folder) if file.startswith(folder) else os.path.basename(file)


def _digest(file: str) -> str:
    if file not in _hashed:
        try:
            with open(file, "rb") as opened:
                _hashed[file] = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError:  # a folder of modules may be an archive, or gone
            _hashed[file] = ""
    return _hashed[file]


def raised_facts(error: BaseException) -> dict[str, Any]:
    """Returns the type of an exception, and the place in the user's own code where it came from: the
    innermost, or, where there is none, the innermost of all."""
    kind = type(error)
    facts: dict[str, Any] = {"type": f"{kind.__module__}.{kind.__qualname__}"[:200]}
    return {**facts, **_place(error.__traceback__)}


def _place(trace: TracebackType | None) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    while trace is not None:
        code = trace.tb_frame.f_code
        own = is_own(code.co_filename)
        if own or not found.get("own"):
            where = relative(code.co_filename) if own else os.path.basename(code.co_filename)
            found = {"file": where, "function": code.co_qualname, "line": trace.tb_lineno, "own": own}
        trace = trace.tb_next
    return found


class CaseNotes:
    """The facts of one attempt so far."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._files: list[dict[str, Any]] = []

    def add_file(self, url: str, size: int, sha256: str) -> None:
        """Notes a file that was fetched, `url` without what may be a secret. Those after 200 are left out."""
        if len(self._files) < _FILES_MOST:
            self._files.append({"url": url, "size": size, "sha256": sha256})

    def facts(self, error: BaseException | None = None) -> dict[str, Any]:
        found = {**process_facts(), "scratch": self._scratch, "files": self._files}
        return found if error is None else {**found, "raised": raised_facts(error)}
