"""The ways to address a bucket at an endpoint, in the order in which they are tried. Pure.

    http://host              host/bucket/key, else bucket.host/key
    http://bucket.host       bucket.host/key, else bucket.host/bucket/key: the host's name may begin with it
    http://host/bucket       host/bucket/key, else host/bucket/bucket/key: a proxy's folder may have its name

Callers write endpoints in all three ways, and some servers accept only one of the first two. A refusal shows
which one; `connections.Connections` remembers the style that was accepted.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit, urlunsplit

from stoker.outbound.s3.regions import host_in

_LABEL = re.compile(r"[a-z0-9][a-z0-9-]*[a-z0-9]")


@dataclass(frozen=True, slots=True)
class Style:
    """If `virtual`, the bucket is part of the host name; otherwise it is the first part of the path. Requests
    are signed for `region`."""

    endpoint: str
    virtual: bool = False
    region: str = ""


Found: TypeAlias = MutableMapping[tuple[str, str], Style]
"""The style of each bucket (endpoint, bucket) that a server has accepted."""


def styles(endpoint: str, bucket: str) -> tuple[Style, ...]:
    """Returns the styles to try, at least one. If `endpoint` is not a URL, connecting to it fails."""
    try:
        url = urlsplit(endpoint)
        host = url.hostname or ""
    except ValueError:
        return (Style(endpoint),)
    above, _, last = url.path.rstrip("/").rpartition("/")
    if last == bucket and bucket:
        return Style(urlunsplit(url._replace(path=above))), Style(endpoint)
    rest = host.removeprefix(f"{bucket.lower()}.")
    if bucket and rest not in ("", host) and not _is_number(host):
        return Style(_at(url, rest), virtual=_is_label(bucket)), Style(endpoint)
    return (
        (Style(endpoint), Style(endpoint, virtual=True))
        if _may_be_virtual(host, bucket)
        else (Style(endpoint),)
    )


def public_style(found: Style, public_endpoint: str, bucket: str) -> Style:
    """Returns the style of callers' URLs, if callers reach the store at another endpoint."""
    first = styles(public_endpoint, bucket)[0]
    if first.endpoint == public_endpoint and found.virtual:
        return Style(
            public_endpoint, virtual=_may_be_virtual(urlsplit(public_endpoint).hostname or "", bucket)
        )
    return first


def in_region(style: Style, region: str) -> tuple[Style, ...]:
    """Returns where a bucket of this region may be: at the same host, and at the store's host of the
    region."""
    here = replace(style, region=region)
    url = urlsplit(style.endpoint)
    host = url.hostname or ""
    there = host_in(host, region)
    return (here,) if there == host else (here, replace(here, endpoint=_at(url, there)))


def _may_be_virtual(host: str, bucket: str) -> bool:
    """Returns whether a host name may begin with the bucket. An IP address has no subdomains, and neither has
    a host name without a dot."""
    return "." in host and not _is_number(host) and _is_label(bucket)


def _is_label(bucket: str) -> bool:
    """Returns whether the bucket is one DNS label: a certificate of the host does not cover a name with
    more."""
    return _LABEL.fullmatch(bucket) is not None and len(bucket) <= 63


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _at(url: SplitResult, host: str) -> str:
    """Returns the URL with another host, which is a name and not an IPv6 address."""
    return urlunsplit(url._replace(netloc=host if url.port is None else f"{host}:{url.port}"))
