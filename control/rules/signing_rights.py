"""The rights of a node to signed requests to the object store: only those of attempts that it holds. Pure.

A node's request is compared with what was assigned to it. Each request that passes is signed for an hour.

    put, start, part, finish, drop   a key of one name below the attempt's own prefix
    link                             the same, for a caller: a URL to read it with, valid for seven days
    read                             the job's own input, its save, or a chunk that this covers
"""

from __future__ import annotations

import re

from stoker.control.rules.types import UploadRight
from stoker.wire.messages import WANTED_MOST, SignAsk, Wanted
from stoker.wire.object_keys import attempt_prefix

OBJECT_MOST = 5 << 40
REQUEST_MOST = 5 << 30
PARTS_MOST = 10_000
"""S3's own bounds: of an object, of what one request carries, of the parts of an object."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_UPLOAD = re.compile(r"[\x21-\x7e]{1,1024}")
_MEDIA_TYPE = re.compile(r"[\x20-\x7e]{0,200}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WRITES = {"put", "start", "part", "finish", "drop"}


def refusal(request: SignAsk, right: UploadRight | None) -> str | None:
    """Returns why nothing is signed, or None. `right` is what the node holds of this attempt."""
    if right is None:
        return f"this node does not hold attempt {request.attempt} of job {request.job}"
    if not 1 <= len(request.wanted) <= WANTED_MOST:
        return f"from 1 to {WANTED_MOST} requests are signed at once, not {len(request.wanted)}"
    prefix = attempt_prefix(right.endpoint, request.job, request.attempt)
    return next(filter(None, (_refused(wanted, right, prefix) for wanted in request.wanted)), None)


def _refused(wanted: Wanted, right: UploadRight, prefix: str) -> str | None:
    if wanted.verb == "read":
        own = {right.input_key, right.save_key} | right.kept_keys
        why = f"{wanted.key!r} is not the input of this job, nor its save, nor a chunk that this covers"
        return None if wanted.key in own else why
    if wanted.verb not in _WRITES and wanted.verb != "link":
        return f"verb {wanted.verb!r} is not known"
    name = wanted.key.removeprefix(prefix)
    if not wanted.key.startswith(prefix) or not _NAME.fullmatch(name):
        return f"key {wanted.key!r} is not a name below {prefix}"
    return _out_of_bounds(wanted)


def _out_of_bounds(wanted: Wanted) -> str | None:
    most = OBJECT_MOST if wanted.verb == "start" else REQUEST_MOST
    if not 0 <= wanted.size <= most:
        return f"size must be 0 to {most} bytes, not {wanted.size}"
    if wanted.verb in {"put", "start"} and not _SHA256.fullmatch(wanted.sha256):
        return f"sha256 must be 64 hexadecimal digits, not {wanted.sha256!r}"
    if not _MEDIA_TYPE.fullmatch(wanted.media_type):
        return f"media_type must be up to 200 characters of ASCII, not {wanted.media_type!r}"
    if len(wanted.name) > 1024:
        return f"name must have at most 1024 characters, not {len(wanted.name)}"
    if wanted.verb in {"part", "finish", "drop"} and not _UPLOAD.fullmatch(wanted.upload):
        return f"upload must be the id of one, not {wanted.upload!r}"
    if wanted.verb == "part" and not 1 <= wanted.part <= PARTS_MOST:
        return f"part must be 1 to {PARTS_MOST}, not {wanted.part}"
    return None
