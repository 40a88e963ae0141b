"""The errors of connections to addresses that a user or an operator named.

OutboundError
 ├─ UrlRefused           the guard does not connect there: scheme, credentials, private address
 ├─ FetchFailed          the response was missing or not usable; `status` is its HTTP status, if any
 ├─ TooLarge             the data was over the limit; none of it is used
 ├─ FileChanged          a file was altered while it was being uploaded
 ├─ ObjectStoreError
 │   ├─ ObjectStoreDown      not reachable or failing inside: the same call may work later
 │   ├─ ObjectStoreRefused   permanent until an operator changes credentials, bucket or clock
 │   │   └─ WrongRegion          the bucket is in another region than the request was signed for
 │   ├─ ObjectStoreFull      its disk or its quota is used up
 │   ├─ ObjectMissing        there is no object under that key
 │   └─ ObjectDamaged        the object is not the one that was stored
 └─ LocalS3Failed        the embedded object store did not start, or ended

Every message is for the person who must act on it. None contains a secret: URLs are shown without
their query. `retryable`: whether the same call may work later.
"""

from __future__ import annotations


class OutboundError(Exception):
    """Base of the errors of this package."""

    retryable = False


class UrlRefused(OutboundError):
    """The URL may not be used. `reason`: scheme, malformed or private_address."""

    def __init__(self, message: str, reason: str = "private_address") -> None:
        super().__init__(message)
        self.reason = reason


class FetchFailed(OutboundError):
    """The address gave no usable response. `status` is the HTTP status, or None. `reason`: unreachable,
    too_slow, redirect, not_found, http_status or bad_answer."""

    def __init__(self, message: str, status: int | None = None, *, reason: str = "unreachable") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason if status is None else "not_found" if status in (404, 410) else "http_status"
        self.retryable = status is None or status >= 500 or status == 429


class TooLarge(OutboundError):
    """The data was over the limit."""

    reason = "too_large"


class FileChanged(OutboundError):
    """The file was altered while it was being uploaded."""


class ObjectStoreError(OutboundError):
    """The object store did not carry out a call."""


class ObjectStoreDown(ObjectStoreError):
    """The object store cannot be reached, or fails inside."""

    retryable = True


class ObjectStoreRefused(ObjectStoreError):
    """The object store refuses the call, now and later."""


class WrongRegion(ObjectStoreRefused):
    """The request was signed for another region than the bucket's. `named` is the region that the object
    store names, or empty."""

    def __init__(self, message: str, named: str = "") -> None:
        super().__init__(message)
        self.named = named


class ObjectStoreFull(ObjectStoreError):
    """The object store has no room."""

    retryable = True


class ObjectMissing(ObjectStoreError):
    """There is no such object."""


class ObjectDamaged(ObjectStoreError):
    """The object is not the one that was stored."""


class LocalS3Failed(OutboundError):
    """The embedded object store did not start, or ended by itself."""
