"""What an S3 call's failure means, as one of our errors with a sentence. Pure, but for botocore's types.

no connection, time-out, 5xx, throttled   -> ObjectStoreDown      the same call may work later
no room: 507, quota, "no space left"      -> ObjectStoreFull
no such object                            -> ObjectMissing
credentials, bucket, region, clock, TLS   -> ObjectStoreRefused   somebody must change something
"""

from __future__ import annotations

from typing import Any

from boto3.exceptions import Boto3Error
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
)
from stoker.outbound.s3_peers import PeerRefused

_FULL_CODES = {
    "InsufficientStorage",
    "QuotaExceeded",
    "XMinioAdminBucketQuotaExceeded",
    "XMinioStorageFull",
}
_FULL_WORDS = ("no space left", "disk quota exceeded", "enospc", "quota exceeded", "not enough space")
_MISSING_CODES = {"NoSuchKey", "404", "NotFound"}
_DOWN_CODES = {
    "NoSuchUpload",  # a server that restarted or gave up on its disk has forgotten the parts: begin again
    "RequestTimeout",
    "RequestTimeoutException",
    "SlowDown",
    "Throttling",
    "TooManyRequests",
}
_TLS_PERMANENT = ("certificate", "wrong_version_number", "wrong version number", "unknown protocol")

UNREACHED = (BotoConnectionError, ConnectionClosedError, HTTPClientError, IncompleteReadError,
             ResponseStreamingError, HTTPError, OSError)  # fmt: skip


def explain(error: Exception, doing: str, endpoint: str, bucket: str) -> ObjectStoreError:
    """`doing` reads like "writing a/b.png"; the sentence begins with it."""
    if (
        isinstance(error, Boto3Error) and error.__context__ is not None
    ):  # a transfer wraps what really happened
        inner = error.__context__
        error = inner if isinstance(inner, Exception) else error
    what = f"{doing} at {endpoint}"
    if isinstance(error, ClientError):
        return _answered(error, what, bucket)
    if isinstance(error, SSLError) and any(word in str(error).lower() for word in _TLS_PERMANENT):
        return ObjectStoreRefused(f"{what} failed: TLS does not come about ({error})")
    if isinstance(error, HTTPClientError) and isinstance(error.kwargs.get("error"), PeerRefused):
        return ObjectStoreRefused(f"{what} is refused: {error.kwargs['error']}")
    if isinstance(error, UNREACHED):
        return ObjectStoreDown(f"{what} failed: the object store cannot be reached ({_short(error)})")
    if isinstance(error, BotoCoreError | ValueError):
        return ObjectStoreRefused(f"{what} is not possible: {_short(error)}")
    return ObjectStoreDown(f"{what} failed: {_short(error)}")


def _answered(error: ClientError, what: str, bucket: str) -> ObjectStoreError:
    answer: dict[str, Any] = dict(error.response)
    code = str(answer.get("Error", {}).get("Code", ""))
    text = str(answer.get("Error", {}).get("Message", "")) or code
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if status == 507 or code in _FULL_CODES or any(word in text.lower() for word in _FULL_WORDS):
        return ObjectStoreFull(f"{what} failed: the object store is full, or its quota is used up ({text})")
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
        return ObjectStoreRefused(
            f"{what} was refused ({text}): check access id, secret, and rights on {bucket!r}"
        )
    return ObjectStoreRefused(f"{what} was refused: {status} {text}")


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:300]
