"""Pulls an image, with credentials and a time limit for a silent registry, and explains a failure.

Blocking, for a thread. The password is sent to the engine in a header only. If a registry repeats it in an
error, it is cut out of the message.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from stoker.wire.messages import RegistryAuth

if TYPE_CHECKING:
    from docker import APIClient

QUIET_S = 120.0
"""An engine reports every step of a pull. If it reports none for this long, its registry hangs."""

STORING_S = 900.0
"""The limit while podman stores what it has downloaded: it reports nothing then, and gigabytes on a slow disk
take long."""

_UNAUTHORIZED = re.compile(r"unauthorized|no basic auth|authentication required|denied|\b401\b|\b403\b", re.I)


class PullFailed(Exception):
    """The message says why, without the password."""


def pull(client: APIClient, name: str, auth: RegistryAuth | None, *, stores_in_silence: bool = False) -> None:
    """Raises PullFailed, and the exceptions of `requests` if the engine itself is gone."""
    from docker.utils import parse_repository_tag
    from requests.exceptions import ConnectionError as Broken
    from requests.exceptions import Timeout

    repository, tag = parse_repository_tag(name)
    untyped: Any = client  # its own `pull` waits without a limit
    quiet_s, failure = QUIET_S, None
    try:
        with untyped.post(
            f"{client.base_url}/v{client.api_version}/images/create",
            params={"fromImage": repository, "tag": tag or "latest"},
            headers=_headers(client, repository, auth),
            stream=True,
            timeout=QUIET_S,
        ) as answer:
            for step in map(json.loads, filter(None, answer.iter_lines())):
                failure = failure or _failure(answer.status_code, step)
                if stores_in_silence and step.get("status") == "Download complete" and quiet_s != STORING_S:
                    quiet_s = STORING_S
                    untyped._get_raw_response_socket(answer)._sock.settimeout(quiet_s)
    except (Timeout, Broken) as error:
        if not isinstance(error, Timeout) and "timed out" not in str(error).lower():
            raise
        raise PullFailed(f"its registry has been silent for {quiet_s:g} s") from None
    if failure is None and answer.status_code >= 400:
        failure = f"status {answer.status_code}"
    if failure is not None:
        raise PullFailed(explain(failure, auth))


def _headers(client: APIClient, repository: str, auth: RegistryAuth | None) -> dict[str, str]:
    """Returns the header with the credentials: `auth`, or else those of the agent's docker configuration."""
    from docker.auth import encode_header, get_config_header, resolve_repository_name

    if auth is not None:
        header: bytes | None = encode_header({"username": auth.username, "password": auth.password})
    else:
        header = get_config_header(client, resolve_repository_name(repository)[0])
    return {} if not header else {"X-Registry-Auth": header.decode()}


def _failure(status: int, step: dict[str, Any]) -> str | None:
    """Returns the failure that a step reports, or None. Some failures come with the status of the answer,
    others in a step: as `error`, or, from version 1.52 of the Engine API, as `errorDetail` only."""
    message = step.get("error") or (step.get("errorDetail") or {}).get("message")
    if not message and status >= 400:
        message = step.get("message") or step.get("cause")
    return None if not message else str(message)


def explain(message: str, auth: RegistryAuth | None) -> str:
    """Returns the engine's message, and what the caller may do about it."""
    if auth is not None and auth.password:
        message = message.replace(auth.password, "[password]")
    if not _UNAUTHORIZED.search(message):
        return message
    if auth is None:
        return f"{message}; no credentials are named for it (containerRegistryAuthId)"
    return f"{message}; the registry does not take the credentials of {auth.username}"
