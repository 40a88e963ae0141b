"""Requests that were valid once: bodies, paths, queries and headers with seeded damage. Request `n` of a seed
is always the same one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from stoker.control.rules.job_states import JobState
from tests.control.http.calls.fake_plane import KEY

S3 = {"accessId": "a", "accessSecret": "hush", "bucketName": "b", "endpointUrl": "https://s3.example"}
SUBMISSIONS: list[dict[str, Any]] = [
    {"input": {}},
    {"input": {}, "policy": {"priority": "urgent", "startBy": 1_000, "deadline": 5_000}},
    {"input": {"prompt": "a cat", "width": 512, "n": [1, 2.5, None, True, {"é": "\n"}]}},
    {"input": {"x": {"y": [[[{"z": "deep"}]]]}}, "webhook": "https://caller.example/done?x=1"},
    {
        "input": {"prompt": "x", "seed": -1},
        "webhook": "http://[::1]:8080/hook",
        "webhookV2": "https://caller.example/two",
        "policy": {"executionTimeout": 60_000, "ttl": 3_600_000, "lowPriority": True},
        "s3Config": {**S3, "objectPath": "a/b", "region": "eu-west-1"},
        "extra": [None],
    },
]
NASTY: list[Any] = [
    None, True, 0, -1, 0.5, 1e308, 10**40, -(2**63), "", "x", "\x00", "é\u2028", "x" * 3_000, [], {}, [[]],
    {"": None}, [[[[[[]]]]]], 9_999, 604_800_001, "https://", "javascript:alert(1)", "http://a:b/", "http://[/",
]  # fmt: skip
RAW = [b"NaN", b"Infinity", b"1e999", b'"\\ud800"', b"[" * 300 + b"]" * 300, b'{"a":1,"a":2}', b"\xff", b"-"]
JOBS = [*(f"job-{state}" for state in JobState), "job-none"]
OPERATIONS = (
    "run", "runsync", "status", "status-sync", "stream", "cancel", "retry", "purge-queue", "requests", "logs",
    "files", "health", "case", "attempts", "input", "replay",
)  # fmt: skip
TAKE_JOB = (
    "status", "status-sync", "stream", "cancel", "retry", "logs", "case", "attempts", "input", "replay",
)  # fmt: skip
ENDPOINTS = ("echo", "other-echo", "sized", "text-to-image", "nobody")
NUMBERS = ["0", "1", "-1", "1000", "300000", "604800000", "99999999999999999999", "1e3", "١", "", " 1", "1_0"]
QUERIES = [
    "wait",
    "ttl",
    "status",
    "since",
    "limit",
    "cursor",
    "until",
    "worker",
    "error",
    "node",
    "stopAfter",
    "unknown",
]
CHARACTERS = "/?%&=#;.. \\\x00\u00e9~"


@dataclass
class Sent:
    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: list[bytes] = field(default_factory=list)


def request(seed: int, n: int) -> Sent:
    rng = Random(f"{seed}/{n}")
    return _submission(rng) if rng.random() < 0.6 else _call(rng)


def _submission(rng: Random) -> Sent:
    operation = rng.choice(OPERATIONS[:2])
    path = f"/v2/{rng.choice(ENDPOINTS[:4])}/{operation}"
    query = b"wait=1000" if rng.random() < 0.3 else b""
    return Sent("POST", path, query, _headers(rng, 0.1), _parts(rng, _body(rng)))


def _call(rng: Random) -> Sent:
    operation = rng.choice(OPERATIONS)
    path = f"/v2/{rng.choice(ENDPOINTS)}/{operation}"
    if operation in TAKE_JOB:
        path += f"/{rng.choice(JOBS)}"
    if rng.random() < 0.3:
        path = _scratched(rng, path)
    method = rng.choice(["GET", "POST", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"])
    body = _body(rng) if rng.random() < 0.3 else b""
    return Sent(method, path, _query(rng), _headers(rng, 0.4), _parts(rng, body))


# -- bodies


def _body(rng: Random) -> bytes:
    damage: list[Callable[[Random], bytes]] = [_misshapen, _misshapen, _misspelt, _misspelt, _spliced]
    return rng.choice(damage)(rng)


def _misshapen(rng: Random) -> bytes:
    """JSON still, with a few values replaced, dropped or put where they do not belong."""
    document = json.loads(json.dumps(rng.choice(SUBMISSIONS)))
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(_places(document) or [(document, "input")])
        if isinstance(holder, dict) and rng.random() < 0.2:
            holder.pop(key, None)
        elif isinstance(holder, dict) and rng.random() < 0.2:
            holder[rng.choice(["input", "webhook", "policy", "s3Config", "\x00", "x" * 200])] = _nasty(rng)
        else:
            holder[key] = _nasty(rng)
    return json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _nasty(rng: Random) -> Any:
    return copy.deepcopy(rng.choice(NASTY))


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    found = [(value, key) for key in keys]
    for key in keys:
        found += _places(value[key])
    return found


def _misspelt(rng: Random) -> bytes:
    """Bytes dropped, put in, doubled or turned."""
    text = bytearray(json.dumps(rng.choice(SUBMISSIONS)).encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(4):
            case 0:
                del text[at : at + rng.randint(1, 8)]
            case 1:
                text[at:at] = rng.randbytes(rng.randint(1, 4))
            case 2:
                text[at:at] = text[at : at + rng.randint(1, 40)]
            case _ if at < len(text):
                text[at] ^= 1 << rng.randrange(8)
    return bytes(text)


def _spliced(rng: Random) -> bytes:
    """What JSON libraries disagree on, where a value stood."""
    text = json.dumps(rng.choice(SUBMISSIONS[1:])).encode()
    values = [b'"a cat"', b"512", b"60000", b'"deep"', b"-1", b"true", b"{}", b"null"]
    return text.replace(rng.choice(values), rng.choice(RAW), 1)


def _parts(rng: Random, body: bytes) -> list[bytes]:
    if rng.random() < 0.8 or not body:
        return [body]
    at = rng.randrange(len(body))
    return [body[:at], b"", body[at:]]


# -- everything else


def _scratched(rng: Random, text: str) -> str:
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        put = rng.choice(CHARACTERS) if rng.random() < 0.7 else ""
        text = text[:at] + put + text[at + rng.randint(0, 2) :]
    return text


def _query(rng: Random) -> bytes:
    requested = [
        f"{rng.choice(QUERIES)}={rng.choice([*NUMBERS, *JobState])}"
        for _ in range(rng.choice([0, 0, 1, 1, 2, 5]))
    ]
    text = "&".join(requested)
    if rng.random() < 0.2:
        text = _scratched(rng, text)
    return text.encode("utf-8")


HEADERS = (b"idempotency-key", b"authorization", b"content-length", b"accept", b"last-event-id", b"x-other")
VALUES = (
    b"", b"1", b"-1", b"9" * 30, b"9" * 5_000, b"\xb2", b"text/event-stream", b"1-0", b"1--1", b"key", b"a b",
    b"\xff" * 10, b"x" * 256, KEY.encode(),
)  # fmt: skip


def _headers(rng: Random, likely: float) -> list[tuple[bytes, bytes]]:
    headers = [(b"authorization", f"Bearer {KEY}".encode()), (b"content-type", b"application/json")]
    if rng.random() < likely / 2:
        headers.append((b"idempotency-key", b"key"))
    while rng.random() < likely:
        headers.insert(rng.randrange(len(headers) + 1), (rng.choice(HEADERS), rng.choice(VALUES)))
    return headers
