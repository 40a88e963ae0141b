"""Requests to the metadata service of the cloud that this host is in: to its link-local address and nowhere
else, without proxies, without redirects, with short limits.

Other hosts cannot answer for it, but a program on this host may listen where there is no such service, so an
answer is bounded and is no more than a hint to its reader.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import httpx2

from stoker.outbound.errors import FetchFailed, TooLarge, UrlRefused

ADDRESS = "169.254.169.254"
"""The same in AWS, GCP and Azure."""

WITHIN_S = 2.0
ANSWER_MOST = 64 * 1024


class MetadataService:
    """The metadata service of a cloud. `address` is link-local, or loopback in tests, and may have a port.
    Raises UrlRefused for another one."""

    def __init__(self, address: str = ADDRESS) -> None:
        host = ipaddress.ip_address(address.partition(":")[0])
        if not (host.is_link_local or host.is_loopback):
            raise UrlRefused(f"the metadata service has a link-local address, not {address}")
        self._url = f"http://{address}"

    async def ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Returns the status and the body; a redirect is not followed. Raises FetchFailed and TooLarge."""
        async with httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=WITHIN_S) as client:
            try:
                async with client.stream(method, self._url + path, headers=dict(headers)) as response:
                    return response.status_code, await _bounded(response)
            except (httpx2.HTTPError, OSError) as error:
                why = str(error) or type(error).__name__
                raise FetchFailed(f"the metadata service at {self._url} does not answer: {why}") from None


async def _bounded(response: httpx2.Response) -> bytes:
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > ANSWER_MOST:
            raise TooLarge(f"the metadata service answered more than {ANSWER_MOST} bytes")
    return body
