"""What a caller's program imports: the API client, its records and its errors."""

from stoker.client.api import Client
from stoker.client.errors import (
    ApiError,
    BadRequest,
    ClientError,
    JobFailed,
    NotFound,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from stoker.client.records import Event, Health, JobRecord

__all__ = [
    "ApiError",
    "BadRequest",
    "Client",
    "ClientError",
    "Event",
    "Health",
    "JobFailed",
    "JobRecord",
    "NotFound",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
]
