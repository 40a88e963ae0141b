"""A submission body, read and checked: bytes in, a `Submission` out, or a BadRequest that names the field.

Nothing is clamped and nothing is filled in. What `input` holds is the endpoint's affair (`control.inputs`);
keys that the interface does not know are left alone, as existing clients send some (`webhookV2`).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from stoker.control.errors import BadRequest
from stoker.control.types import S3Config, Submission

EXECUTION_TIMEOUT_MS = (5_000, 604_800_000)
TTL_MS = (10_000, 604_800_000)
URL_LENGTH = 2_048
SHOWN = 100
"""Letters of a wrong value that an error repeats."""


def parse_submission(body: bytes) -> Submission:
    """Reads a body of `/run` or `/runsync`."""
    document = _document(body)
    if "input" not in document:
        raise BadRequest("input is missing; the body must be a JSON object with the key input, an object")
    given = document["input"]
    if not isinstance(given, dict):
        raise wrong("input", given, "an object")
    data = _json_text(given)
    if len(document) == 1:
        return Submission(data)
    policy = _optional_object(document, "policy")
    return Submission(
        input=data,
        webhook=_webhook(document),
        execution_timeout_ms=_bounded(policy, "policy.executionTimeout", EXECUTION_TIMEOUT_MS),
        ttl_ms=_bounded(policy, "policy.ttl", TTL_MS),
        low_priority=_low_priority(policy),
        s3=_s3(_optional_object(document, "s3Config")),
    )


def wrong(field: str, value: object, allowed: str) -> BadRequest:
    """An error that names the field, what it got and what it takes."""
    return BadRequest(f"{field} must be {allowed}; got {shown(value)}")


def shown(value: object) -> str:
    """A wrong value as JSON, cut to a length that fits a sentence."""
    try:
        text = to_json(value).decode()
    except ValueError:
        text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise wrong("the body", document, "a JSON object with the key input")
    return document


def _json_text(given: dict[str, Any]) -> bytes:
    text = to_json(given)
    if b"Infinity" in text:
        _refuse_infinity(text)
    return text


def _refuse_infinity(text: bytes) -> None:
    """1e999 is JSON and reads as infinity, which is not; the word may as well stand in a string."""
    try:
        from_json(text, allow_inf_nan=False)
    except ValueError:
        raise BadRequest("input holds a number that is too large; numbers must fit 64-bit floats") from None


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
    """Only its form: whether the address may be visited is for the outbound guard to say."""
    if len(value) > longest or any(letter <= " " or letter == "\x7f" for letter in value):
        return False
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _s3(given: dict[str, Any]) -> S3Config | None:
    if not given:
        return None
    return S3Config(
        access_id=_text(given, "accessId"),
        access_secret=_text(given, "accessSecret"),
        bucket=_text(given, "bucketName"),
        endpoint_url=_url("s3Config.endpointUrl", _text(given, "endpointUrl")),
        object_path=_object_path(given),
    )


def _text(given: dict[str, Any], name: str) -> str:
    """A required text. Its value is not repeated: it may be a secret in the wrong place."""
    value = given.get(name)
    if not isinstance(value, str) or not value:
        found = "missing" if value is None else "empty" if value == "" else f"of type {type(value).__name__}"
        raise BadRequest(
            f"s3Config.{name} is {found}; s3Config must have the non-empty strings"
            " accessId, accessSecret, bucketName and endpointUrl"
        )
    return value


def _object_path(given: dict[str, Any]) -> str:
    value = given.get("objectPath")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong("s3Config.objectPath", value, "a string")
    return value
