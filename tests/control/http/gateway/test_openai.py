"""A load-balancing endpoint at the one base URL of OpenAI clients: its workers get what was sent."""

from __future__ import annotations

import json
from typing import Any

from tests.control.http.gateway.memory_worker import Caller, Served, Site, app_endpoint, site
from tests.control.plane_world import endpoint, story

CHAT = "/openai/v1/chat/completions"


async def told(served: Served) -> None:
    """Responds with what came."""
    request = {"method": served.request.method.decode(), "target": served.request.target.decode()}
    served.respond(json.dumps({**request, "headers": served.headers, "body": served.body.decode()}).encode())


async def posted(s: Site, path: str, body: bytes, **headers: str) -> Caller:
    return await s.caller(path, "POST", content_length=str(len(body)), **headers).run(body)


def seen(caller: Caller) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(caller.body)
    return found


@story
async def test_a_worker_gets_the_request_at_the_same_path() -> None:
    async with site(told, app_endpoint(), endpoint("echo")) as s:
        [worker] = await s.ready()
        body = b'{"model": "app",  "n": 1.0}'
        caller = await posted(s, f"{CHAT}?x=1", body, content_type="application/json")
        assert (caller.status, caller.headers["x-runpod-worker-id"]) == (200, worker)
        assert (seen(caller)["method"], seen(caller)["target"]) == ("POST", "/v1/chat/completions?x=1")
        assert seen(caller)["body"] == body.decode(), "byte for byte"
        assert "authorization" not in seen(caller)["headers"]
        listed = await s.get("/openai/v1/models")
        assert [one["id"] for one in json.loads(listed.body)["data"]] == ["app", "echo"]


@story
async def test_after_a_slash_the_model_is_the_workers() -> None:
    async with site(told) as s:
        await s.ready()
        body = b'{"model": "app/org/tiny", "stream": true}'
        caller = await posted(s, CHAT, body, content_encoding="identity")
        assert json.loads(seen(caller)["body"]) == {"model": "org/tiny", "stream": True}
        assert "content-encoding" not in seen(caller)["headers"]
        form = b'--a\r\nContent-Disposition: form-data; name="model"\r\n\r\n%s\r\n--a--\r\n'
        of_form = {"content_type": "multipart/form-data; boundary=a"}
        whole = await posted(s, "/openai/v1/audio/transcriptions", form % b"app", **of_form)
        assert seen(whole)["body"] == (form % b"app").decode()
        refused = await posted(s, "/openai/v1/audio/transcriptions", form % b"app/tiny", **of_form)
        assert refused.status == 400
        assert json.loads(refused.body)["error"]["message"].startswith("model must be app in a form")


@story
async def test_a_wrong_key_reaches_no_worker() -> None:
    async with site(told) as s:
        await s.ready()
        body = b'{"model": "app"}'
        caller = await posted(s, CHAT, body, authorization="Bearer wrong")
        assert caller.status == 401
        assert s.workers.connects == []
