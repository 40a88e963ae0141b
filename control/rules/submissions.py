"""Submissions of jobs: a body, read and checked (bytes in, a `Submission` out, or a BadRequest that names the
field), and the id of a new job.

Nothing is clamped and nothing is filled in. What `input` holds is the endpoint's affair
(`control.rules.inputs`); keys that the interface does not know are ignored and named, as existing clients
send some (`webhookV2`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic_core import from_json, to_json

from stoker.control.errors import BadRequest
from stoker.control.rules.limits import (
    DEADLINE_MS,
    EXECUTION_TIMEOUT_MS,
    START_BY_MS,
    TEXT_LENGTH,
    TTL_MS,
    URL_LENGTH,
)
from stoker.control.rules.queueing.priorities import Priority
from stoker.outbound.refused_addresses import refusal_before_lookup
from stoker.outbound.s3.regions import is_region
from stoker.wire.messages import Saved
from stoker.wire.records import Hiding

KNOWN: Mapping[str, tuple[str, ...] | None] = {
    "policy": ("deadline", "executionTimeout", "lowPriority", "priority", "startBy", "ttl"),
    "s3Config": ("accessId", "accessSecret", "bucketName", "endpointUrl", "objectPath", "region"),
    "input": None,
    "webhook": None,
}
"""The keys of a body, and those of its objects; whatever `input` holds is known."""

MAX_VALUE_CHARACTERS = 100
"""Characters of a wrong value that an error repeats."""


class S3Config(Hiding, frozen=True):
    """A caller's own bucket. The secret is encrypted at rest and never logged."""

    HIDDEN = ("access_secret",)

    access_id: str
    access_secret: str
    bucket: str
    endpoint_url: str
    object_path: str = ""
    region: str = ""


class Once(Struct, frozen=True):
    """An idempotency key, and a digest of the request that it came with."""

    key: str
    fingerprint: bytes


class Submission(Struct, frozen=True):
    """A checked submission body. `input` is the JSON text of its `input` value. `priority`: None where the
    body names no class. `ignored`: keys without meaning, such as `policy.executionTimeoutMs`. `traceparent`:
    from the header, not from the body. `saved`: the save of the job that this one is a replay of."""

    input: bytes
    webhook: str | None = None
    execution_timeout_ms: int | None = None
    ttl_ms: int | None = None
    start_by_ms: int | None = None
    deadline_ms: int | None = None
    priority: Priority | None = None
    s3: S3Config | None = None
    once: Once | None = None
    ignored: tuple[str, ...] = ()
    traceparent: str | None = None
    saved: Saved | None = None


def parse_submission(body: bytes) -> Submission:
    """Reads a body of `/run` or `/runsync`."""
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise wrong("the body", document, "a JSON object with the key input")
    if "input" not in document:
        raise BadRequest("input is missing; the body must be a JSON object with the key input, an object")
    value = document["input"]
    if not isinstance(value, dict):
        raise wrong("input", value, "an object")
    data = to_json(value)
    if b"Infinity" in data:
        _refuse_infinity(data)
    if len(document) == 1:
        return Submission(data)
    policy = _optional_object(document, "policy")
    return Submission(
        input=data,
        webhook=_webhook(document),
        execution_timeout_ms=_bounded(policy, "policy.executionTimeout", EXECUTION_TIMEOUT_MS),
        ttl_ms=_bounded(policy, "policy.ttl", TTL_MS),
        start_by_ms=_bounded(policy, "policy.startBy", START_BY_MS),
        deadline_ms=_bounded(policy, "policy.deadline", DEADLINE_MS),
        priority=_priority(policy),
        s3=_s3(_optional_object(document, "s3Config")),
        ignored=tuple(_ignored(document)),
    )


def refuse_unreachable(submission: Submission, *, allow_private: bool) -> None:
    """Refuses a submission with an address to which nothing would ever be delivered. What a name resolves to
    is checked when it is used. Raises BadRequest."""
    named = [("webhook", submission.webhook)]
    if submission.s3 is not None:
        named.append(("s3Config.endpointUrl", submission.s3.endpoint_url))
    for name, url in named:
        why = url and refusal_before_lookup(url, allow_private)
        if not url or not why:
            continue
        allowed = (
            ""
            if refusal_before_lookup(url, True)
            else "; allow_private_addresses = true in stoker.toml allows it"
        )
        raise BadRequest(f"{name}: {why}{allowed}")


def wrong(field: str, value: object, allowed: str) -> BadRequest:
    """Returns an error that names the field, what it got and what it takes."""
    return BadRequest(f"{field} must be {allowed}; got {abbreviated(value)}")


def abbreviated(value: object) -> str:
    """Returns a wrong value as JSON, cut to a length that fits a sentence."""
    try:
        text = to_json(value).decode()
    except ValueError:
        text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 3] + "..."


def _refuse_infinity(text: bytes) -> None:
    """Refuses numbers such as 1e999, which is JSON but reads as infinity, which is not. A plain search would
    not do: the word may also stand in a string."""
    try:
        from_json(text, allow_inf_nan=False)
    except ValueError:
        raise BadRequest("input holds a number that is too large; numbers must fit 64-bit floats") from None


def _ignored(document: dict[str, Any]) -> Iterator[str]:
    for name, value in document.items():
        if name not in KNOWN:
            yield name
        elif (known := KNOWN[name]) is not None and value:
            yield from (f"{name}.{key}" for key in value if key not in known)


def _optional_object(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(name, value, "an object")
    return value


def _bounded(policy: dict[str, Any], field: str, bounds: tuple[int, int]) -> int | None:
    value = policy.get(field.rpartition(".")[2])
    if value is None:
        return None
    low, high = bounds
    allowed = f"an integer from {low} to {high} (milliseconds)"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not low <= value <= high:
        raise wrong(field, value, allowed)
    return value


def _priority(policy: dict[str, Any]) -> Priority | None:
    """Reads the class: `priority`, and its older synonym. `lowPriority: false` says nothing."""
    low, value = _low_priority(policy), policy.get("priority")
    if value is None:
        return Priority.LOW if low else None
    if not isinstance(value, str) or value not in list(Priority):
        raise wrong("policy.priority", value, " or ".join(Priority))
    if low and value != Priority.LOW:
        raise BadRequest(
            f"policy.priority and policy.lowPriority contradict each other: {value!r} and true;"
            " send one of them"
        )
    return Priority(value)


def _low_priority(policy: dict[str, Any]) -> bool:
    value = policy.get("lowPriority")
    if value is None:
        return False
    if not isinstance(value, bool):
        raise wrong("policy.lowPriority", value, "true or false")
    return value


def _webhook(document: dict[str, Any]) -> str | None:
    value = document.get("webhook")
    return None if value is None else _url("webhook", value)


def _url(field: str, value: object) -> str:
    allowed = f"an http or https URL of at most {URL_LENGTH} characters"
    if not isinstance(value, str) or not is_http_url(value):
        raise wrong(field, value, allowed)
    if "@" in urlsplit(value).netloc:  # nothing would be sent there; and it is not repeated
        raise BadRequest(f"{field} must not hold a user name or a password")
    return value


def is_http_url(value: str, longest: int = URL_LENGTH) -> bool:
    """Returns whether a text has the form of a URL: the outbound guard decides whether the address may be
    called."""
    if len(value) > longest or any(character <= " " or character == "\x7f" for character in value):
        return False
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _s3(fields: dict[str, Any]) -> S3Config | None:
    if not fields:
        return None
    return S3Config(
        access_id=_text(fields, "accessId"),
        access_secret=_text(fields, "accessSecret"),
        bucket=_text(fields, "bucketName"),
        endpoint_url=_url("s3Config.endpointUrl", _text(fields, "endpointUrl")),
        object_path=_object_path(fields),
        region=_region(fields),
    )


def _text(fields: dict[str, Any], name: str) -> str:
    """Returns a required text. A wrong value is not repeated: it may be a secret in the wrong place."""
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        found = "missing" if value is None else "empty" if value == "" else f"of type {type(value).__name__}"
        raise BadRequest(
            f"s3Config.{name} is {found}; s3Config must have the non-empty strings"
            " accessId, accessSecret, bucketName and endpointUrl"
        )
    if name != "endpointUrl" and len(value) > TEXT_LENGTH:
        raise BadRequest(f"s3Config.{name} has {len(value)} characters; it may have {TEXT_LENGTH}")
    return value


def _object_path(fields: dict[str, Any]) -> str:
    value = fields.get("objectPath")
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > TEXT_LENGTH:
        raise wrong("s3Config.objectPath", value, f"a string of at most {TEXT_LENGTH} characters")
    return value


def _region(fields: dict[str, Any]) -> str:
    """Reads the bucket's region. Left out, the region is learnt from the endpoint's host or the store."""
    value = fields.get("region")
    if value is None:
        return ""
    if not isinstance(value, str) or (value and not is_region(value)):
        raise wrong("s3Config.region", value, "the name of a region, such as eu-west-1, or left out")
    return value


def job_id(rng: Random, *, sync: bool) -> str:
    """Returns a new id: `<uuid4>-u1` for `/run`, `sync-<uuid4>-u1` for `/runsync`."""
    drawn = uuid.UUID(int=rng.getrandbits(128), version=4)
    return f"sync-{drawn}-u1" if sync else f"{drawn}-u1"
