"""Requests at `/openai` whose model is a load-balancing endpoint: its workers get them at the same path.

    POST /openai/v1/chat/completions   ->   POST /v2/{endpoint}/v1/chat/completions

The gateway admits them, and passes them on. The body is as it was sent, but for a model that is named after a
slash: that is `model` of the body then, which must be JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.control.errors import BadRequest
from stoker.control.http.calls.answers import OwnResponse
from stoker.control.http.calls.forms import is_form
from stoker.control.http.openai.requests import OpenAIRequest

_OF_THE_BODY = (b"content-length", b"content-encoding", b"transfer-encoding", b"trailer")
"""Headers of the body as it came, which was read."""


@dataclass(slots=True)
class ToWorkers(OwnResponse):
    """The response of a worker to a request with this path and body."""

    gateway: ASGIApp
    path: str
    body: bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first: list[Message] = [{"type": "http.request", "body": self.body, "more_body": False}]

        async def once_more() -> Message:
            return first.pop() if first else await receive()

        path = {"path": self.path, "raw_path": quote(self.path).encode()}
        passed = {**scope, **path, "headers": _headers(scope["headers"], len(self.body))}
        await self.gateway(passed, once_more, send)


def _headers(headers: Iterable[tuple[bytes, bytes]], size: int) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name not in _OF_THE_BODY]
    return [*kept, (b"content-length", b"%d" % size)]


def to_workers(
    gateway: ASGIApp, endpoint: str, sent: OpenAIRequest, given: OpenAIRequest, body: bytes, media_type: str
) -> ToWorkers:
    """Returns the response to a request that was sent with this body, and is given to a worker otherwise if
    its model says so. Raises BadRequest."""
    if given is not sent:
        if is_form(media_type):
            raise BadRequest(
                f"model must be {endpoint} in a form, as only JSON is changed for workers; their own base URL"
                f" is /v2/{endpoint}/v1"
            )
        body = to_json(given.body)
    return ToWorkers(gateway, f"/v2/{endpoint}{sent.route}", body)
