"""The endpoint that an address names, and the path that its worker sees. Pure.

    path form   /v2/{endpoint}/<any path>
    host form   {endpoint}.<domain>/<any path>

Every path reaches the worker. What control knows of the endpoint is at /v1/endpoints/{endpoint}/health.

Paths are bytes as they were sent: what is percent-encoded stays so.
"""

from __future__ import annotations

from msgspec import Struct

PREFIX = b"/v2/"


class Target(Struct, frozen=True):
    """The target of a request. `prefix` is what the path form puts before the worker's own path; empty in the
    host form."""

    endpoint: str
    path: bytes
    prefix: str = ""


def of_path(raw_path: bytes) -> Target | None:
    """Returns the target that a path names; None where the path has another form."""
    if not raw_path.startswith(PREFIX):
        return None
    name, slash, rest = raw_path.removeprefix(PREFIX).partition(b"/")
    if not name:
        return None
    endpoint = name.decode("latin-1")
    return Target(endpoint, slash + rest if slash else b"/", f"/v2/{endpoint}")


def of_host(host: str, domain: str, raw_path: bytes) -> Target | None:
    """Returns the target that a Host header names; None where the host is not one label before the domain."""
    name = host.rpartition(":")[0] if _has_port(host) else host
    endpoint, dot, rest = name.lower().rstrip(".").partition(".")
    if not dot or not endpoint or rest != domain:
        return None
    return Target(endpoint, raw_path or b"/")


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdecimal() and ":" in host
