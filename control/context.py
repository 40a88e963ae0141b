"""The context of a control process: the things that its parts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from stoker.control.config.settings import PlaneSettings
from stoker.control.store.database.commits import Commits
from stoker.control.traces.traces import Traces


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a process. `clock` returns seconds since the epoch; `rng` draws ids and jitter; `traces`
    is None where no spans are exported."""

    settings: PlaneSettings
    commits: Commits
    clock: Callable[[], float]
    rng: Random
    traces: Traces | None = None
