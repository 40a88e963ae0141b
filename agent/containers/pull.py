"""Pulling an image: with whose password, how long a silent registry is waited for, what a failure is called.

Blocking, for a thread. The password goes to the engine in a header and nowhere else: should a registry send
it back in its words, it is cut out of them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from stoker.wire.messages import RegistryAuth

if TYPE_CHECKING:
    from docker import APIClient

QUIET_S = 120.0
"""An engine tells of every step of a pull. When it tells of none for so long, its registry hangs."""

STORING_S = 900.0
"""But podman stores in silence what it has read, and that may be gigabytes on a slow disk."""

_NOT_LET_IN = re.compile(r"unauthorized|no basic auth|authentication required|denied|\b401\b|\b403\b", re.I)


class PullFailed(Exception):
    """The text is a sentence, without the password."""


def pull(client: APIClient, name: str, auth: RegistryAuth | None, *, stores_in_silence: bool = False) -> None:
    """Raises PullFailed, and what `requests` raises when the engine itself has gone."""
    from docker.utils import parse_repository_tag
    from requests.exceptions import ConnectionError as Broken
    from requests.exceptions import Timeout

    repository, tag = parse_repository_tag(name)
    given: Any = client  # its own `pull` waits for ever
    quiet_s, said = QUIET_S, None
    try:
        with given.post(
            f"{client.base_url}/v{client.api_version}/images/create",
            params={"fromImage": repository, "tag": tag or "latest"},
            headers=_headers(client, repository, auth),
            stream=True,
            timeout=QUIET_S,
        ) as answer:
            for step in map(json.loads, filter(None, answer.iter_lines())):
                said = said or _failure(answer.status_code, step)
                if stores_in_silence and step.get("status") == "Download complete" and quiet_s != STORING_S:
                    quiet_s = STORING_S
                    given._get_raw_response_socket(answer)._sock.settimeout(quiet_s)
    except (Timeout, Broken) as error:
        if not isinstance(error, Timeout) and "timed out" not in str(error).lower():
            raise
        raise PullFailed(f"its registry has been silent for {quiet_s:g} s") from None
    if said is None and answer.status_code >= 400:
        said = f"status {answer.status_code}"
    if said is not None:
        raise PullFailed(in_words(said, auth))


def _headers(client: APIClient, repository: str, auth: RegistryAuth | None) -> dict[str, str]:
    """Without credentials of its own, those of the agent's docker configuration."""
    from docker.auth import encode_header, get_config_header, resolve_repository_name

    if auth is not None:
        header: bytes | None = encode_header({"username": auth.username, "password": auth.password})
    else:
        header = get_config_header(client, resolve_repository_name(repository)[0])
    return {} if not header else {"X-Registry-Auth": header.decode()}


def _failure(status: int, step: dict[str, Any]) -> str | None:
    """Some failures come as a status, others in the middle of the steps: in the older of two places, or, from
    version 1.52 of the Engine API on, in the newer alone."""
    said = step.get("error") or (step.get("errorDetail") or {}).get("message")
    if not said and status >= 400:
        said = step.get("message") or step.get("cause")
    return None if not said else str(said)


def in_words(said: str, auth: RegistryAuth | None) -> str:
    """What the engine said, and what may be done about it."""
    if auth is not None and auth.password:
        said = said.replace(auth.password, "[password]")
    if not _NOT_LET_IN.search(said):
        return said
    if auth is None:
        return f"{said}; no credentials are named for it (containerRegistryAuthId)"
    return f"{said}; the registry does not take the credentials of {auth.username}"
