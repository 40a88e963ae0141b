"""Settings as people paste them: keys, tokens and addresses, with blanks or a line break at their ends. Pure.

Errors name the setting, and never show what a secret holds.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from stoker.client.errors import ClientError

_UNSEEN = r"[\s\ufeff\u200b-\u200d\u2060]+"
_AT_THE_ENDS = re.compile(rf"\A{_UNSEEN}|{_UNSEEN}\Z")
_NO_HEADER = re.compile(r"[^ -~]")


def cleaned(text: str) -> str:
    """Returns the text without blanks, line breaks and marks that nobody sees at its ends."""
    return _AT_THE_ENDS.sub("", text)


def secret(name: str, text: str) -> str:
    """Returns the cleaned key or token. Raises ClientError if no header of a request can hold it; `name` is
    the setting's."""
    found = cleaned(text)
    if wrong := _NO_HEADER.search(found):
        what = "a line break" if wrong[0] in "\r\n" else "a character that is not printable ASCII"
        raise ClientError(
            f"{name} has {what} at place {wrong.start() + 1} of {len(found)}, which no key has; it is not"
            " shown here: copy the key again, in one line"
        )
    return found


def addresses(name: str, text: str) -> tuple[str, ...]:
    """Returns the cleaned addresses, which commas separate; at least one."""
    return tuple(address(name, one) for one in text.split(",") if cleaned(one)) or (cleaned(text),)


def address(name: str, text: str) -> str:
    """Returns the cleaned address of a service. Raises ClientError for a password in it, which would be sent
    in place of the API key."""
    found = cleaned(text)
    try:
        holds_password = "@" in urlsplit(found).netloc
    except ValueError:
        return found  # no URL: whoever uses it says so
    if holds_password:
        raise ClientError(
            f"{name} must not hold a user name or a password: the service is called with an API key"
        )
    return found
