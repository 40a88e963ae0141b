"""Everything that control refuses, and its HTTP status.

ControlError
 ├─ BadRequest 400      what was sent cannot be accepted; the text names field, value and what is allowed
 │   └─ InvalidInput    a hosted model's input, found wrong before queuing: body {id, status: FAILED, error}
 ├─ Unauthorized 401    no key, a wrong one, a revoked one
 │   └─ Forbidden       a valid key without the right to this; 403 in management v2
 ├─ PriorityRefused 403 a class of jobs above the highest that the key may submit
 ├─ CasesClosed 403     a valid key without the right to read cases, or the inputs of others
 ├─ NotFound 404        no such endpoint; no such job, or its time has passed
 ├─ Conflict 409        an action that a pod's state does not allow
 ├─ BodyTooSlow 408     a body that was not whole within its deadline
 ├─ TooLarge 413        a body over its limit
 ├─ UnsupportedEncoding 415   a body that is compressed in another way than gzip
 ├─ KeyReused 422       an idempotency key that came with another request before
 ├─ Unprocessable 422   what is of a wrong kind: a template for pods at an endpoint, a cursor of another list
 ├─ TooMany 429         over a rate limit or a quota; with the time of the next try
 ├─ NotServed 501       an operation of the field's that there is not here: nothing was changed
 └─ Unavailable 503     the store or the object store is full or down: nothing was accepted, try again
     └─ DatabaseDown            the store is: that is logged once, when it begins and when it is over
         └─ UncertainCommit     the store went away during a commit: accepted or not is unknown
"""

from __future__ import annotations

import logging


class ControlError(Exception):
    """Something went wrong in the control plane."""

    status = 500
    title = "Internal Server Error"


class BadRequest(ControlError):
    status = 400
    title = "Bad Request"


class InvalidInput(BadRequest):
    """The error that an input does not fit the endpoint's schema. `job` is an id that was drawn for the
    answer and is not stored."""

    def __init__(self, message: str, job: str) -> None:
        super().__init__(message)
        self.job = job


class Unauthorized(ControlError):
    status = 401
    title = "Unauthorized"


class Forbidden(Unauthorized):
    """A valid key without the right. Management v2 answers 403: clients there take a 401 for a wrong key."""


class PriorityRefused(ControlError):
    status = 403
    title = "Forbidden"


class CasesClosed(ControlError):
    """A valid key without the right to read cases, or the inputs of others. The routes have no clients of the
    field's, which would take a 401 for it."""

    status = 403
    title = "Forbidden"


class NotFound(ControlError):
    status = 404
    title = "Not Found"


class Conflict(ControlError):
    status = 409
    title = "Conflict"


class BodyTooSlow(ControlError):
    """The connection is closed after it: the rest of the body may still come."""

    status = 408
    title = "Request Timeout"


class TooLarge(ControlError):
    status = 413
    title = "Payload Too Large"


class UnsupportedEncoding(ControlError):
    status = 415
    title = "Unsupported Media Type"


class KeyReused(ControlError):
    status = 422
    title = "Unprocessable Entity"


class Unprocessable(ControlError):
    status = 422
    title = "Unprocessable Entity"


class TooMany(ControlError):
    """The error that a limit is exceeded: `limit` requests per window, or at once where `window_s` is None;
    `retry_after` is in seconds. `unit`: another unit of the limit than requests, as `RateLimit-Policy` names
    it."""

    status = 429
    title = "Too Many Requests"

    def __init__(
        self, message: str, *, limit: int, window_s: int | None, retry_after: int, unit: str = ""
    ) -> None:
        super().__init__(message)
        self.limit, self.window_s, self.retry_after = limit, window_s, retry_after
        self.unit = unit


class NotServed(ControlError):
    status = 501
    title = "Not Implemented"


class Unavailable(ControlError):
    """The error that the service cannot answer now. `retry_after` is in seconds."""

    status = 503
    title = "Service Unavailable"

    def __init__(self, message: str, retry_after: int = 2) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DatabaseDown(Unavailable):
    """The error that the store is full, away or locked. The committer logs the begin and the end of that."""


class UncertainCommit(DatabaseDown):
    """A commit that may or may not have been stored. Only reading the store tells which."""


def level_of(error: BaseException) -> int:
    """Returns the level of a line of the log about something that failed and is done again: an outage of the
    database has its own two lines."""
    return logging.DEBUG if isinstance(error, DatabaseDown) else logging.ERROR
