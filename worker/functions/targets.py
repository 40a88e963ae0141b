"""Targets of calls in the modules of an app, and their results as JSON values.

An instance of a class is created once, for the first call of one of its methods, and kept.
"""

from __future__ import annotations

import importlib
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stoker.app_values import ValueRefused, decode, encode
from stoker.worker.errors import HandlerError, describe
from stoker.worker.functions.routing import BadCall

RAISED = 500


class Targets:
    def __init__(self) -> None:
        self._instances: dict[type, Any] = {}
        self._lock = threading.Lock()

    def find(self, module: str, name: str) -> Callable[..., Any]:
        """Returns the function, or the method of the kept instance. What the module or the class raises
        passes through. Raises HandlerError if there is none.
        """
        found: Any = importlib.import_module(module)
        first, _, method = name.partition(".")
        target = getattr(found, first, None)
        if method and isinstance(target, type):
            with self._lock:
                if target not in self._instances:
                    self._instances[target] = target()
            target = getattr(self._instances[target], method, None)
        if not callable(target) or method.startswith("_"):
            raise HandlerError(f"the module {module} has no {name} that can be called")
        return target  # type: ignore[no-any-return]


def arguments(target: Callable[..., Any], name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the decoded arguments. Raises BadCall if the function does not take them."""
    try:
        decoded = {key: decode(value, _read, where=key) for key, value in kwargs.items()}
        inspect.signature(target).bind(**decoded)
    except (TypeError, ValueRefused) as error:
        raise BadCall(422, f"{name}: {error}") from None
    return decoded


def result(value: Any, name: str, scratch: str) -> Any:
    """Returns the value as JSON values, with many bytes in a file in `scratch`. Raises ValueRefused."""

    def store(data: bytes) -> Mapping[str, str]:
        folder = Path(scratch)
        folder.mkdir(mode=0o700, exist_ok=True)
        number = sum(1 for _ in folder.iterdir())
        path = folder / f"result-{number}.bin"
        path.write_bytes(data)
        return {"file": str(path)}

    return encode(value, store if scratch else None, where=f"what {name} returned")


def error_of(error: BaseException, root: str) -> dict[str, Any]:
    """Returns the text of a failed call, with paths below the app's folder, and the kind of failure."""
    if isinstance(error, ValueRefused):
        error = HandlerError(str(error))
    text = describe(error).replace(root + os.sep, "")
    retryable = isinstance(error, HandlerError) and error.retryable
    status = error.status if isinstance(error, BadCall) else RAISED
    return {"error": text, "status": status, "retryable": retryable}


def _read(tagged: Mapping[str, Any]) -> bytes:
    if not isinstance(tagged.get("file"), str):
        raise ValueRefused("an argument has no data")
    return Path(tagged["file"]).read_bytes()
