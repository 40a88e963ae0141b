"""Everything a call can end with besides an answer.

ClientError
 ├─ Unreachable          no answer: refused, cut off, or timed out
 ├─ ApiError             an answer that is not a success; `.status` is the HTTP code, `.body` what came,
 │   │                   `.retry_after` the seconds after which to ask again, where it says so
 │   ├─ BadRequest       400  the text names the field, the value and what is allowed
 │   ├─ Unauthorized     401  no key, a wrong one, a revoked one
 │   ├─ NotFound         404  no such endpoint or job, or its time has passed
 │   ├─ TooLarge         413  the body is over its limit
 │   ├─ KeyReused        422  the idempotency key came with another request before
 │   ├─ RateLimited      429  more calls than the limit allows
 │   └─ Unavailable      503  full or stopping; nothing was accepted
 ├─ NotEnded             the job still waits or runs after the time given to `wait`; `.job` is its record
 └─ JobFailed            the job itself ended without a result; `.job` is its record
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.client.records import JobRecord


class ClientError(Exception):
    """A call did not succeed."""


class Unreachable(ClientError):
    """Nothing answered at this address."""


class ApiError(ClientError):
    """The service answered with an error."""

    def __init__(self, message: str, status: int, body: Any = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after = retry_after


class BadRequest(ApiError):
    """What was sent cannot be accepted."""


class Unauthorized(ApiError):
    """No key, a wrong one, or a revoked one."""


class NotFound(ApiError):
    """No such endpoint or job, or its time has passed."""


class TooLarge(ApiError):
    """The body is over its limit."""


class KeyReused(ApiError):
    """The idempotency key was used for another request."""


class RateLimited(ApiError):
    """More calls than the limit allows."""


class Unavailable(ApiError):
    """The service is full or stopping; nothing was accepted."""


class NotEnded(ClientError):
    """The job was waited for and has not ended."""

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
