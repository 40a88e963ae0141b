"""The API client for callers' programs, with its records and errors."""

from stoker.client.api import Client
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
from stoker.client.httpx_adapter import KeyInTheClear
from stoker.client.records import AttemptLog, Event, Health, JobPage, JobRecord

__all__ = [
    "ApiError",
    "AsyncClient",
    "AttemptLog",
    "BadRequest",
    "Client",
    "ClientError",
    "Event",
    "Health",
    "JobFailed",
    "JobPage",
    "JobRecord",
    "KeyInTheClear",
    "KeyReused",
    "NotEnded",
    "NotFound",
    "RateLimited",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
]
