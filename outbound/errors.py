"""Everything that can go wrong on the way to an address that a user or an operator named.

OutboundError
 ├─ UrlRefused           the guard will not go there: scheme, credentials, private address
 ├─ FetchFailed          it went, and got no usable answer; `status` where one was given
 ├─ TooLarge             what came was over the limit; nothing of it counts
 ├─ FileChanged          a file was altered while it was being uploaded
 ├─ ObjectStoreError
 │   ├─ ObjectStoreDown      not reachable or failing inside: the same call may work later
 │   ├─ ObjectStoreRefused   permanent until somebody changes something: credentials, bucket, clock
 │   ├─ ObjectStoreFull      no room: its disk or its quota is used up, until somebody makes some
 │   ├─ ObjectMissing        there is no object under that key
 │   └─ ObjectDamaged        there is one, and it is not the one that was promised
 └─ LocalS3Failed        the embedded object store would not start, or ended

Every text is a sentence for whoever must act on it. None holds a secret: URLs are shown without their query.
`retryable` says whether the same call may work later, as it stands.
"""

from __future__ import annotations


class OutboundError(Exception):
    """Something went wrong outside."""

    retryable = False


class UrlRefused(OutboundError):
    """This URL may not be used. `reason`: scheme, malformed or private_address."""

    def __init__(self, message: str, reason: str = "private_address") -> None:
        super().__init__(message)
        self.reason = reason


class FetchFailed(OutboundError):
    """The address gave no usable answer. `status` is the HTTP status, None where there was none. `reason`:
    unreachable, too_slow, redirect, not_found, http_status or bad_answer."""

    def __init__(self, message: str, status: int | None = None, *, reason: str = "unreachable") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason if status is None else "not_found" if status in (404, 410) else "http_status"
        self.retryable = status is None or status >= 500 or status == 429


class TooLarge(OutboundError):
    """What came was larger than what may come."""

    reason = "too_large"


class FileChanged(OutboundError):
    """The file was altered while it was being uploaded."""


class ObjectStoreError(OutboundError):
    """The object store did not do what it was asked."""


class ObjectStoreDown(ObjectStoreError):
    """The object store cannot be reached, or fails inside."""

    retryable = True


class ObjectStoreRefused(ObjectStoreError):
    """The object store will not do this for us, now or later."""


class ObjectStoreFull(ObjectStoreError):
    """The object store has no room."""

    retryable = True


class ObjectMissing(ObjectStoreError):
    """There is no such object."""


class ObjectDamaged(ObjectStoreError):
    """The object is not the one that was stored."""


class LocalS3Failed(OutboundError):
    """The embedded object store did not start, or ended by itself."""
