"""The hosted image model behind the official OpenAI clients.

POST /v1/images/generations   a job for each image
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any
from urllib.parse import unquote, urlsplit

from stoker.control.errors import NotFound
from stoker.control.http.calls.answers import Answer, json_answer
from stoker.control.http.calls.calls import Call
from stoker.control.http.calls.openai.running import FinishedJob, failure, finish, is_completed
from stoker.control.http.calls.openai.sent import request_of
from stoker.control.http.openai import images
from stoker.control.rules.types import JobView
from stoker.wire.messages import Ref
from stoker.wire.names import attempt_prefix

IMAGE_BYTES = 64 * 1024 * 1024


async def answer(call: Call) -> Answer:
    """Answers a request for images. Raises ControlError."""
    request = await request_of(call)
    properties = (call.endpoint.run.schema or {}).get("properties", {})
    if request.route != images.ROUTE or request.body is None or "image_format" not in properties:
        raise NotFound(f"{call.method} {request.route} is not served by {call.endpoint.id}")
    return await call.while_connected(_made(call, images.parse_images(request.body)))


async def _made(call: Call, request: images.ImagesRequest) -> Answer:
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(finish(call, one)) for one in request.inputs]
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    finished = [task.result() for task in running]
    for one in finished:
        if not is_completed(one.view):
            return failure(one.view)
    data = [await _image(call, one, as_base64=request.as_base64) for one in finished]
    return json_answer({"created": int(finished[0].view.created_at), "data": data})


async def _image(call: Call, finished: FinishedJob, *, as_base64: bool) -> dict[str, Any]:
    output = finished.output
    if not as_base64:
        return {"url": output["image_url"], "seed": output["seed"]}
    return {"b64_json": await _data(call, finished.view, output["image_url"]), "seed": output["seed"]}


async def _data(call: Call, view: JobView, url: str) -> str:
    """Returns the file of an image in base64."""
    data = await call.plane.artifacts.get(Ref(_key_of(url, view), IMAGE_BYTES, ""))
    return base64.b64encode(data).decode()


def _key_of(url: str, view: JobView) -> str:
    """Returns the object's key, which is the end of its URL's path."""
    path, prefix = unquote(urlsplit(url).path), attempt_prefix(view.endpoint, view.id, view.attempt)
    return path[path.index(prefix) :]
