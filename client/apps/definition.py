"""The options of an `@endpoint(...)`: which of them there are, and what is allowed. Pure.

Raises DefinitionError for each wrong option, with a sentence that names the option, its value and what is
allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

MARK = "__stoker_endpoint__"
ROUTES_MARK = "__stoker_routes__"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,98}[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*[^\x00-\x1f]*")
_SYSTEM_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*(=[A-Za-z0-9.+:~-]+)?")
_INSTANCE = re.compile(r"cpu[35][cgm]-[1-9][0-9]{0,2}-[1-9][0-9]{0,3}")
RESERVED_ENV = "STOKER_FUNCTIONS"


class DefinitionError(ValueError):
    """A wrong option: the message names it, its value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The options of one endpoint, checked.

    `name` is "" if none was set. `gpu`: None if none was requested, an empty tuple for any GPU, else the
    names of GPUs, best first. `cpu`: None, a number of virtual CPUs, or instances such as "cpu3c-8-16".
    `workers`: the fewest and the most. `idle_timeout` is in seconds; `execution_timeout_ms` is 0 for the
    platform's default. `volume` is the id of a network volume.
    """

    name: str = ""
    gpu: tuple[str, ...] | None = None
    cpu: tuple[str, ...] | int | None = None
    gpu_count: int = 1
    workers: tuple[int, int] = (0, 3)
    dependencies: tuple[str, ...] = ()
    system_dependencies: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    idle_timeout: int = 60
    execution_timeout_ms: int = 0
    volume: str = ""
    max_concurrency: int = 1

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Definition:
        """Checks the options of a decorator. Raises DefinitionError."""
        for name in options:
            if name not in _CHECKS:
                raise DefinitionError(f"endpoint has no option {name}; its options are {', '.join(_CHECKS)}")
        checked = {name: _CHECKS[name](name, value) for name, value in options.items()}
        if checked.get("gpu") is not None and checked.get("cpu") is not None:
            raise DefinitionError(
                f"gpu and cpu exclude each other; got {options['gpu']!r}, {options['cpu']!r}"
            )
        if checked.get("gpu_count", 1) > 1 and checked.get("cpu") is not None:
            raise DefinitionError(f"gpu_count is for GPUs; got {options['gpu_count']!r} beside cpu")
        return cls(**checked)

    def as_json(self) -> dict[str, Any]:
        """Returns the options as JSON values, for `from_json`."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Definition:
        """Raises KeyError if `values` are not those of `as_json`."""
        read: dict[str, Any] = {one.name: values[one.name] for one in fields(cls)}
        for name, value in read.items():
            if isinstance(value, list):
                read[name] = tuple(value)
        return cls(**read)


def _number(low: int, high: int, *, or_zero: bool = False) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not (low <= value <= high or (or_zero and value == 0))
        ):
            zero = ", or 0 for the default" if or_zero else ""
            raise DefinitionError(
                f"{name} must be a whole number from {low} to {high}{zero}; got {value!r:.100}"
            )
        return value

    return check


def _texts(pattern: re.Pattern[str], example: str) -> Callable[[str, Any], tuple[str, ...]]:
    def check(name: str, value: Any) -> tuple[str, ...]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise DefinitionError(f"{name} must be a list of texts such as {example!r}; got {value!r:.100}")
        for one in value:
            if not isinstance(one, str) or not pattern.fullmatch(one):
                raise DefinitionError(f"{name} must have texts such as {example!r}; got {one!r:.100}")
        return tuple(value)

    return check


def _check_name(name: str, value: Any) -> str:
    if value == "" or (isinstance(value, str) and _NAME.fullmatch(value)):
        return str(value)
    raise DefinitionError(
        f"{name} must be at most 100 letters, digits and dashes, with no dash at its ends; got {value!r:.100}"
    )


def _check_gpu(name: str, value: Any) -> tuple[str, ...] | None:
    if value is None or value is False:
        return None
    if value is True:
        return ()
    names = (value,) if isinstance(value, str) else value
    if (
        isinstance(names, Sequence)
        and names
        and all(isinstance(one, str) and 0 < len(one) < 192 for one in names)
    ):
        return tuple(names)
    raise DefinitionError(
        f'{name} must be True, a name such as "NVIDIA L4", or a list of names; got {value!r:.100}'
    )


def _check_cpu(name: str, value: Any) -> tuple[str, ...] | int | None:
    if value is None or value is False:
        return None
    if value is True:
        return ()
    if isinstance(value, int) and 1 <= value <= 1024:
        return value
    instances = (value,) if isinstance(value, str) else value
    if (
        isinstance(instances, Sequence)
        and instances
        and all(isinstance(one, str) and _INSTANCE.fullmatch(one) for one in instances)
    ):
        return tuple(instances)
    raise DefinitionError(
        f'{name} must be True, a number of virtual CPUs from 1 to 1024, or an instance such as "cpu3c-8-16",'
        f" or a list of instances; got {value!r:.100}"
    )


def _check_workers(name: str, value: Any) -> tuple[int, int]:
    pair = (0, value) if isinstance(value, int) else value
    if (
        isinstance(pair, Sequence)
        and len(pair) == 2
        and all(isinstance(one, int) and not isinstance(one, bool) for one in pair)
        and 0 <= pair[0] <= pair[1] <= 1000
        and pair[1] > 0
    ):
        return pair[0], pair[1]
    raise DefinitionError(
        f"{name} must be the most workers, from 1 to 1000, or (fewest, most); got {value!r:.100}"
    )


def _check_env(name: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise DefinitionError(f"{name} must be a dict of variables; got {value!r:.100}")
    for key, text in value.items():
        if not isinstance(key, str) or not _ENV_NAME.fullmatch(key) or key.startswith(RESERVED_ENV):
            raise DefinitionError(
                f"{name} must have names of letters, digits and underscores, none of which begins with"
                f" {RESERVED_ENV}; got {key!r:.100}"
            )
        if not isinstance(text, str) or "\0" in text:
            raise DefinitionError(f"{name} must have texts as values; {key} is {text!r:.100}")
    return dict(value)


def _check_volume(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise DefinitionError(f"{name} must be the id of a network volume; got {value!r:.100}")


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "name": _check_name,
    "gpu": _check_gpu,
    "cpu": _check_cpu,
    "gpu_count": _number(1, 64),
    "workers": _check_workers,
    "dependencies": _texts(_REQUIREMENT, "pillow>=12"),
    "system_dependencies": _texts(_SYSTEM_PACKAGE, "ffmpeg"),
    "env": _check_env,
    "idle_timeout": _number(1, 3600),
    "execution_timeout_ms": _number(5_000, 604_800_000, or_zero=True),
    "volume": _check_volume,
    "max_concurrency": _number(1, 1000),
}
