"""The API client for callers' programs, with its records and errors; and `endpoint`, for apps.

Names are imported when they are first used: a module of an app, which imports `endpoint`, needs no httpx2 on
a worker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.client.api import Client
    from stoker.client.apps.declaration import endpoint
    from stoker.client.apps.remote import Remote
    from stoker.client.async_api import AsyncClient
    from stoker.client.errors import (
        ApiError,
        BadRequest,
        ClientError,
        JobFailed,
        KeyReused,
        NotEnded,
        NotFound,
        RateLimited,
        TooLarge,
        Unauthorized,
        Unavailable,
        Unreachable,
    )
    from stoker.client.httpx2_adapter import KeyInTheClear
    from stoker.client.records import (
        Attempt,
        AttemptLog,
        Event,
        Health,
        JobAttempts,
        JobPage,
        JobRecord,
        WorkerLog,
    )

_HOMES = {
    "api": ("Client",),
    "async_api": ("AsyncClient",),
    "apps.declaration": ("endpoint",),
    "apps.remote": ("Remote",),
    "httpx2_adapter": ("KeyInTheClear",),
    "records": (
        "Attempt",
        "AttemptLog",
        "Event",
        "Health",
        "JobAttempts",
        "JobPage",
        "JobRecord",
        "WorkerLog",
    ),
}
"""The modules of the names; all others are in `errors`."""

__all__ = [
    "ApiError",
    "AsyncClient",
    "Attempt",
    "AttemptLog",
    "BadRequest",
    "Client",
    "ClientError",
    "Event",
    "Health",
    "JobAttempts",
    "JobFailed",
    "JobPage",
    "JobRecord",
    "KeyInTheClear",
    "KeyReused",
    "NotEnded",
    "NotFound",
    "RateLimited",
    "Remote",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "WorkerLog",
    "endpoint",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "errors")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    return value
