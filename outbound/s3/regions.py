"""The region that requests to a bucket are signed for. Pure.

    read from the endpoint's host     s3-eu-west-1.amazonaws.com, s3.fr-par.scw.cloud
    named by the store's refusal      a header, <Region>, <Endpoint> or Location, or the text of its message

Many stores of one region take any; `us-east-1` is what most others of them expect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

DEFAULT = "us-east-1"

_REGION = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\Z")
_R = r"(?P<region>[a-z0-9-]+)"
_HOSTS = tuple(
    re.compile(rf"(?:^|\.){pattern}\Z")
    for pattern in (
        r"s3(?:-fips|-accesspoint)*(?:[.-]dualstack)?[.-](?P<region>[a-z]{2}(?:-[a-z]+)+-\d+)"
        r"(?:\.vpce)?\.amazonaws\.com(?:\.cn)?",
        rf"s3\.{_R}\.(?:scw\.cloud|backblazeb2\.com|wasabisys\.com|(?:petabox|rabata)\.io|idrivecloud\.io)",
        rf"(?:s3|storage)\.{_R}\.(?:io\.|perf\.)?cloud\.ovh\.(?:net|us)",
        rf"{_R}\.(?:cdn\.)?digitaloceanspaces\.com",
        rf"{_R}\.(?:linodeobjects|vultrobjects|your-objectstorage|i3storage)\.com",
        rf"s3\.(?:private\.|direct\.)?{_R}\.cloud-object-storage\.appdomain\.cloud",
        rf"s3[.-]{_R}\.ionoscloud\.com",
        rf"s3\.{_R}\.(?:storage\.selcloud\.ru|srvstorage\.(?:kz|uz))",
        rf"s3\.{_R}\.(?:[a-z0-9-]+\.)?lyve\.seagate\.com",
        rf"{_R}\.s3\.synologyc2\.net",
        rf"{_R}\.storage\.impossibleapi\.net",
        rf"{_R}\.object\.fastlystorage\.app",
        rf"{_R}\.cloud\.gcore\.lu",
        rf"oos\.{_R}\.outscale\.com",
        rf"obs\.{_R}\.myhuaweicloud\.(?:com|eu)",
        rf"cos\.{_R}\.myqcloud\.com",
        rf"sos-{_R}\.exo\.io",
        rf"storage\.{_R}\.nebius\.cloud",
        rf"compat\.objectstorage\.{_R}\.oraclecloud\.com",
        rf"s3api-{_R}\.runpod\.io",
    )
)
_OTHER_NAMES = {
    "s3.eu-central-1.ionoscloud.com": "de",
    "s3-eu-central-1.ionoscloud.com": "de",
}
_OF_NO_REGION = re.compile(
    r"(?:^|\.)(?:r2\.cloudflarestorage\.com|storage\.googleapis\.com|fly\.storage\.tigris\.dev|t3\.storage\.dev)\Z"
)
_REGIONAL = ("amazonaws.com", "wasabisys.com")
"""Stores at s3.<name> that also have a host for each region."""

_CODES = {
    "301",
    "302",
    "307",
    "AuthorizationHeaderMalformed",
    "AuthorizationQueryParametersError",
    "IllegalLocationConstraintException",
    "IncorrectEndpoint",
    "InvalidRegion",
    "InvalidRegionName",
    "PermanentRedirect",
    "Redirect",
    "TemporaryRedirect",
}
_IN_MESSAGE = (
    re.compile(r"expecting '([^'/]+)'"),
    re.compile(r"expected:? \d{8}/([^/]+)/s3/aws4_request"),
    re.compile(r"[Tt]he (\S+) location constraint is incompatible"),
)


def is_region(name: str) -> bool:
    return _REGION.match(name) is not None


def region_of(endpoint_url: str) -> str:
    """Returns the region of an endpoint by its host, or the default one."""
    return _region_in(_host(endpoint_url)) or DEFAULT


def host_in(host: str, region: str) -> str:
    """Returns the host of the same store for another region, or the same host where there is none."""
    for name in _REGIONAL:
        if host == f"s3.{name}":
            return f"s3.{region}.{name}"
    for pattern in _HOSTS:
        if found := pattern.search(host):
            return host[: found.start("region")] + region.lower() + host[found.end("region") :]
    return host


def is_about_region(answer: Mapping[str, Any], region: str) -> bool:
    """Returns whether a store refused a request because it was signed for `region`. `answer` is what botocore
    makes of it."""
    status = _status(answer)
    if not (300 <= status < 400 or status in (400, 403)):
        return False
    return _error(answer).get("Code", "") in _CODES or named_region(answer) not in ("", region)


def named_region(answer: Mapping[str, Any]) -> str:
    """Returns the region that a refusal names, or an empty string."""
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    error = _error(answer)
    named: list[str] = [headers.get("x-amz-bucket-region", ""), error.get("Region", "")]
    message = error.get("Message", "")
    named += [found[1] for pattern in _IN_MESSAGE if (found := pattern.search(message))]
    named += [_region_in(_host(text)) for text in (error.get("Endpoint", ""), headers.get("location", ""))]
    region = next((name for name in named if name == "unspecified" or is_region(name)), "")
    return DEFAULT if region == "unspecified" else region


def _region_in(host: str) -> str:
    if _OF_NO_REGION.search(host):
        return "auto"
    for pattern in _HOSTS:
        if found := pattern.search(host):
            region = _OTHER_NAMES.get(host[found.start() :].lstrip("."), found["region"])
            return region.upper() if host.endswith(".runpod.io") else region
    return ""


def _host(url: str) -> str:
    try:
        return (urlsplit(url if "://" in url else f"//{url}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _error(answer: Mapping[str, Any]) -> Mapping[str, str]:
    return {name: str(value or "") for name, value in answer.get("Error", {}).items()}


def _status(answer: Mapping[str, Any]) -> int:
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
