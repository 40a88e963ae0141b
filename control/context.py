"""The context of a control process: the things that its parts share."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import Struct

from stoker.control.config.settings import PlaneSettings
from stoker.control.store.database.commits import Commits
from stoker.control.traces.traces import Traces


class Context(Struct, frozen=True):
    """The context of a process. `clock` returns seconds since the epoch; `rng` draws ids and jitter; `traces`
    is None where no spans are exported."""

    settings: PlaneSettings
    commits: Commits
    clock: Callable[[], float]
    rng: Random
    traces: Traces | None = None
