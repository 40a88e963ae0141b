"""Maps the failure of an S3 call to one of `outbound.errors`. Pure, except for botocore's types.

no connection, time-out, 5xx, throttled   -> ObjectStoreDown      the same call may work later
no room: 507, quota, "no space left"      -> ObjectStoreFull
no such object                            -> ObjectMissing
signed for another region                 -> WrongRegion          the store may name the region
credentials, bucket, clock, TLS           -> ObjectStoreRefused   an operator must change it
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    HTTPClientError,
    IncompleteReadError,
    ResponseStreamingError,
    SSLError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from urllib3.exceptions import HTTPError

from stoker.outbound.errors import (
    ObjectMissing,
    ObjectStoreDown,
    ObjectStoreError,
    ObjectStoreFull,
    ObjectStoreRefused,
    WrongRegion,
)
from stoker.outbound.s3.peers import PeerRefused
from stoker.outbound.s3.regions import is_about_region, named_region

_FULL_CODES = {
    "InsufficientStorage",
    "QuotaExceeded",
    "XMinioAdminBucketQuotaExceeded",
    "XMinioStorageFull",
}
_FULL_TEXTS = ("no space left", "disk quota exceeded", "enospc", "quota exceeded", "not enough space")
_MISSING_CODES = {"NoSuchKey", "404", "NotFound"}
_DOWN_CODES = {
    "NoSuchUpload",  # a server that restarted has forgotten the parts: start again
    "RequestTimeout",
    "RequestTimeoutException",
    "SlowDown",
    "Throttling",
    "TooManyRequests",
}
_TLS_PERMANENT = ("certificate", "wrong_version_number", "wrong version number", "unknown protocol")

FAILURES = BotoCoreError, ClientError, HTTPError, OSError, ValueError
"""What a call of botocore raises."""

UNREACHED = (BotoConnectionError, ConnectionClosedError, HTTPClientError, IncompleteReadError,
             ResponseStreamingError, HTTPError, OSError)  # fmt: skip


def explain(error: Exception, doing: str, endpoint: str, bucket: str, region: str = "") -> ObjectStoreError:
    """Returns the error for a failed call. `doing`, such as "writing a/b.png", begins its message. `region`
    is the one that the request was signed for, if known."""
    what = f"{doing} at {endpoint}"
    if isinstance(error, ClientError):
        return _from_response(error, what, bucket, region)
    if isinstance(error, SSLError) and any(text in str(error).lower() for text in _TLS_PERMANENT):
        return ObjectStoreRefused(f"{what} failed: no TLS connection is possible ({error})")
    if isinstance(error, HTTPClientError) and isinstance(error.kwargs.get("error"), PeerRefused):
        return ObjectStoreRefused(f"{what} is refused: {error.kwargs['error']}")
    if isinstance(error, UNREACHED):
        return ObjectStoreDown(f"{what} failed: the object store cannot be reached ({_short(error)})")
    if isinstance(error, BotoCoreError | ValueError):
        return ObjectStoreRefused(f"{what} is not possible: {_short(error)}")
    return ObjectStoreDown(f"{what} failed: {_short(error)}")


def _from_response(error: ClientError, what: str, bucket: str, region: str) -> ObjectStoreError:
    answer: dict[str, Any] = dict(error.response)
    code = str(answer.get("Error", {}).get("Code", ""))
    text = str(answer.get("Error", {}).get("Message", "")) or code
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if status == 507 or code in _FULL_CODES or any(part in text.lower() for part in _FULL_TEXTS):
        return ObjectStoreFull(f"{what} failed: the object store is full, or its quota is used up ({text})")
    if region and is_about_region(answer, region):
        return _wrong_region(answer, f"{what} was refused: {status} {text}", region)
    if code == "NoSuchBucket" or (code in _MISSING_CODES and error.operation_name == "HeadBucket"):
        return ObjectStoreRefused(f"{what} failed: there is no bucket {bucket!r}")
    if code in _MISSING_CODES:
        return ObjectMissing(f"{what} failed: there is no such object")
    if code == "RequestTimeTooSkewed":
        return ObjectStoreRefused(
            f"{what} was refused: this machine's clock and the object store's differ ({text})"
        )
    if status >= 500 or status == 429 or code in _DOWN_CODES:
        return ObjectStoreDown(f"{what} failed: the object store answered {status} {text}")
    if status in (401, 403):
        also = f", and that {region} is its region" if region and code == "SignatureDoesNotMatch" else ""
        return ObjectStoreRefused(
            f"{what} was refused ({text}): check access id, secret, and rights on {bucket!r}{also}"
        )
    return ObjectStoreRefused(f"{what} was refused: {status} {text}")


def _wrong_region(answer: dict[str, Any], refused: str, region: str) -> WrongRegion:
    named = named_region(answer)
    hint = f"the bucket is in {named}" if named else "if the bucket is in another one, name that as `region`"
    return WrongRegion(f"{refused}; the request was signed for the region {region}, {hint}", named)


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:300]
