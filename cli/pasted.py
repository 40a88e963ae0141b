"""Settings as people pasted them into the environment and into options, cleaned before any command reads
them."""

from __future__ import annotations

from collections.abc import MutableMapping

from stoker.client.pasted import cleaned, secret

OURS = "STOKER_"
OTHERS = ("HF_ENDPOINT", "DOCKER_HOST")
"""Addresses that other tools read, too."""

SENT_IN_HEADERS = (
    "STOKER_API_KEY",
    "STOKER_JOIN_TOKEN",
    "STOKER_S3_ACCESS_ID",
    "STOKER_S3_SESSION_TOKEN",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
)


def clean_environment(environ: MutableMapping[str, str]) -> None:
    """Cleans the settings in place. Raises ClientError for a key that cannot be sent."""
    for name, value in list(environ.items()):
        if name in SENT_IN_HEADERS:
            found = secret(name, value)
        elif name.startswith(OURS) or name in OTHERS:
            found = cleaned(value)
        else:
            continue
        if found != value:
            environ[name] = found


def clean_option(value: str | None) -> str | None:
    """Cleans an address on the command line. A callback of options."""
    return None if value is None else cleaned(value)


def clean_options(values: list[str] | None) -> list[str] | None:
    """Cleans the addresses of an option that may be repeated. A callback of options."""
    return None if values is None else [cleaned(value) for value in values]


def clean_token(value: str | None) -> str | None:
    """Cleans a token on the command line. A callback of options."""
    return None if value is None else secret("the token on the command line", value)
