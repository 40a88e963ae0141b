"""Takes known secrets out of text that others will read, and leaves `***` in their place.

Pure. A secret is known by the name of its variable in the endpoint's environment, because control says that
it is one (`hidden`), or because a job brought it. It is found as it stands, as URLs, JSON and `repr` write
it, these in one another, and inside base64, where basic authentication puts it. Of one that a cut went
through, what is left at the begin or the end of a line goes, too, unless it is so little that it could be
anything.

A handler that wants to reveal a secret can: one character a line, or hashed, is not found.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final
from urllib.parse import quote, quote_plus

HIDDEN = "***"

SECRET_MIN = 4
"""Shorter than this it hides nothing and would blot out half of the text."""

PART_MOST = 12
"""What a cut has left of a secret is hidden if it has this many characters; for a shorter one, half of
them."""

WHOLE_MOST = 2000
"""A line of fewer characters was not cut, unless it is the first or the last."""

NESTED_MOST = 3
_WRITERS: Final[tuple[Callable[[str], str], ...]] = (
    repr,
    json.dumps,
    partial(json.dumps, ensure_ascii=False),
)

_ENCODED_MIN = 8
"""What a shorter secret leaves in base64 could be anything."""

_SECRET_NAME = re.compile(r"key|secret|token|passw|pwd|credential|auth", re.IGNORECASE)
_PLAIN = re.compile(r"true|false|yes|no|none|null|auto|[\d.]{1,7}", re.IGNORECASE)
"""TOKENIZERS_PARALLELISM=false, MAX_TOKENS=2048: what a name alone makes no secret of."""

_SPOILT = "\ufffd"
"""What is left of a character that a cut went through."""


def secrets_of(env: Mapping[str, str], hidden: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns the secrets among these variables, and those `hidden`; of a secret with several lines, each
    line."""
    values = [v for name, v in env.items() if _SECRET_NAME.search(name) and not _PLAIN.fullmatch(v.strip())]
    parts = [part.strip() for value in (*values, *hidden) for part in value.splitlines()]
    return tuple(dict.fromkeys(part for part in parts if len(part) >= SECRET_MIN))


def hide(lines: Sequence[str], secrets: Iterable[str]) -> tuple[str, ...]:
    """Hides the secrets in the lines, the longest first: a secret may be a part of another."""
    if not lines:
        return ()
    long = (secret for secret in secrets if len(secret) >= SECRET_MIN)
    forms = sorted({form for secret in long for form in _forms(secret)}, key=len, reverse=True)
    if not forms:
        return tuple(lines)
    text = "\n".join(lines)
    for form in forms:
        text = text.replace(form, HIDDEN)
    found = text.split("\n")
    last = len(found) - 1
    return tuple(
        _without_parts(line, forms) if n in (0, last) or len(line) >= WHOLE_MOST else line
        for n, line in enumerate(found)
    )


def hidden_in(text: str, secrets: Iterable[str]) -> str:
    """Hides the secrets in a text of any number of lines."""
    return "\n".join(hide(text.split("\n"), secrets))


@lru_cache(maxsize=1024)
def _forms(secret: str) -> frozenset[str]:
    """Returns every form that a secret is written in."""
    quoted = {write(secret, safe, errors="replace") for write in (quote, quote_plus) for safe in ("", "/")}
    return frozenset((*_nested(secret), *quoted, *_encoded(secret.encode("utf-8", "surrogatepass"))))


def _nested(secret: str) -> set[str]:
    """Returns the secret as it stands, and as JSON and `repr` write it, nested in each other: the stock
    worker logs, as JSON, an error that is JSON, of a text that may hold the secret as `repr` wrote it."""
    found = {secret}
    for _ in range(NESTED_MOST):
        found |= {write(form)[1:-1] for form in found for write in _WRITERS}
    return found


def _encoded(secret: bytes) -> Iterable[str]:
    """Yields the part of the secret's base64 that is the same whatever stands before and after the secret:
    three bytes are four characters of base64, so there are three ways to begin."""
    if len(secret) < _ENCODED_MIN:
        return
    for before in range(3):
        first, end = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + secret).decode("ascii")[first:end]


def _without_parts(line: str, forms: Sequence[str]) -> str:
    for form in forms:
        part = max(SECRET_MIN, min(PART_MOST, len(form) // 2))
        line = _without_first_part(line, form, part)
        line = _without_last_part(line, form, part)
    return line


def _without_first_part(line: str, form: str, part: int) -> str:
    """Hides the first part of a form at the end of a line that was cut in the middle of the form."""
    text = line.rstrip(_SPOILT)
    at = text.find(form[:part], max(0, len(text) - len(form) + 1))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(form[:part], at + 1)
    return line if at < 0 else text[:at] + HIDDEN


def _without_last_part(line: str, form: str, part: int) -> str:
    """Hides the last part of a form at the beginning of a line that was cut in the middle of the form."""
    text = line.lstrip(_SPOILT)
    at = text.rfind(form[-part:], 0, len(form) - 1)
    while at >= 0 and not form.endswith(text[: at + part]):
        at = text.rfind(form[-part:], 0, at + part - 1)
    return line if at < 0 else HIDDEN + text[at + part :]
