"""The errors of a call.

ClientError
 ├─ Unreachable          no response: refused, cut off, or timed out
 ├─ ApiError             a response that is not a success; `.status` is the HTTP status, `.body` the body,
 │   │                   `.retry_after` the seconds to wait before the next try, if the service sent them
 │   ├─ BadRequest       400  the message names the field, the value and what is allowed
 │   ├─ Unauthorized     401  no key, a wrong key or a revoked key
 │   ├─ NotFound         404  no such endpoint or job, or its record has expired
 │   ├─ TooLarge         413  the body is over its limit
 │   ├─ KeyReused        422  the idempotency key was used for another request
 │   ├─ RateLimited      429  more calls than the limit allows
 │   └─ Unavailable      503  full or stopping; nothing was accepted
 ├─ NotEnded             the job still waits or runs after `timeout_s` of `wait`; `.job` is its record
 └─ JobFailed            the job ended without a result; `.job` is its record
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.client.records import JobRecord


class ClientError(Exception):
    """Base of the client's errors."""


class Unreachable(ClientError):
    """The service did not respond."""


class ApiError(ClientError):
    """The service responded with an error."""

    def __init__(self, message: str, status: int, body: Any = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.body, self.retry_after = status, body, retry_after


class BadRequest(ApiError):
    """The request is not valid."""


class Unauthorized(ApiError):
    """No key, a wrong key or a revoked key."""


class NotFound(ApiError):
    """The endpoint or the job does not exist, or its record has expired."""


class TooLarge(ApiError):
    """The body is over its limit."""


class KeyReused(ApiError):
    """The idempotency key was used for another request."""


class RateLimited(ApiError):
    """More calls than the limit allows."""


class Unavailable(ApiError):
    """The service is full or stopping; nothing was accepted."""


class NotEnded(ClientError):
    """The job has not ended within the time to wait."""

    def __init__(self, job: JobRecord, seconds: float) -> None:
        super().__init__(f"job {job.id} is {job.status} after a wait of {seconds:g} s")
        self.job = job


class JobFailed(ClientError):
    """The job ended FAILED, TIMED_OUT or CANCELLED."""

    def __init__(self, job: JobRecord) -> None:
        why = job.error or job.reason or "no reason was given"
        super().__init__(f"job {job.id} ended {job.status}: {why}")
        self.job = job


BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    404: NotFound,
    413: TooLarge,
    422: KeyReused,
    429: RateLimited,
    503: Unavailable,
}
