"""Calls in httpx's words, the same for its client that waits and its client that awaits."""

from __future__ import annotations

from typing import Any

import httpx

from stoker.client.calls import Call, Reply
from stoker.client.errors import ClientError, Unreachable
from stoker.client.following import SILENCE_S

_SLACK_S = 15.0
"""An answer to a held call may take this much longer than the wait that was asked for."""


def settings(base_url: str, api_key: str, timeout_s: float) -> dict[str, Any]:
    return {
        "base_url": base_url.rstrip("/").removesuffix("/v2") + "/",
        "headers": {"Authorization": f"Bearer {api_key}"},
        "timeout": timeout_s,
        "trust_env": False,
    }


def request(http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
    timeout: Any = call.held_ms / 1000 + _SLACK_S if call.held_ms else httpx.USE_CLIENT_DEFAULT
    return http.build_request(
        call.method,
        f"{call.under}/{call.path}",
        json=call.body,
        content=call.content,
        params=call.params,
        headers=call.headers,
        timeout=timeout,
    )


def events_request(http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
    """Its answer comes piece by piece, for as long as the job lives."""
    timeout = httpx.Timeout(http.timeout.connect, read=SILENCE_S)
    return http.build_request(call.method, f"{call.under}/{call.path}", headers=call.headers, timeout=timeout)


def reply(response: httpx.Response) -> Reply:
    retry_after = response.headers.get("Retry-After", "")
    return Reply(response.status_code, response.reason_phrase, response.text, retry_after)


def failure(request: httpx.Request, error: httpx.TransportError) -> ClientError:
    """Unreachable, unless nothing was sent and nothing ever will be."""
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
        return ClientError(f"{request.url} cannot be asked: {error}")
    address = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
    return Unreachable(f"no answer from {address}: {error or type(error).__name__}")
