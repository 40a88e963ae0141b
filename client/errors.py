"""Everything a call can end with besides an answer.

ClientError
 ├─ Unreachable          no answer: refused, cut off, or timed out
 ├─ ApiError             an answer that is not a success; `.status` is the HTTP code, `.body` what came
 │   ├─ BadRequest       400  the text names the field, the value and what is allowed
 │   ├─ Unauthorized     401  no key, a wrong one, a revoked one
 │   ├─ NotFound         404  no such endpoint or job, or its time has passed
 │   ├─ TooLarge         413  the body is over its limit
 │   ├─ TooManyRequests  429  wait, then again
 │   └─ Unavailable      503  nothing was accepted; `.retry_after` seconds, then again
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


class TooManyRequests(ApiError):
    """More requests than the limit allows."""


class Unavailable(ApiError):
    """The service is full or down; nothing was accepted."""


class JobFailed(ClientError):
    """The job ended FAILED, TIMED_OUT or CANCELLED."""

    def __init__(self, job: JobRecord) -> None:
        super().__init__(f"job {job.id} ended {job.status}: {job.error or 'no reason was given'}")
        self.job = job


BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    404: NotFound,
    413: TooLarge,
    429: TooManyRequests,
    503: Unavailable,
}
