"""An image model behind the official OpenAI clients.

POST /v1/images/generations   a job for each image; with `stream`, the events of one
POST /v1/images/edits         the same, from images or a part of one; what was sent as a file is kept for it
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace
from pydantic_core import from_json, to_json
from starlette.responses import Response

from stoker.control.errors import BadRequest, ControlError, NotFound
from stoker.control.http.calls.answers import Answer, json_answer
from stoker.control.http.calls.calls import Call
from stoker.control.http.calls.openai.running import (
    NOT_AGAIN,
    STOPPING,
    Events,
    FinishedJob,
    failure,
    finish,
    is_completed,
    streamed,
)
from stoker.control.http.calls.openai.sent import url_of
from stoker.control.http.openai import answers, image_events, images
from stoker.control.http.openai.requests import OpenAIRequest
from stoker.control.rules.types import JobView
from stoker.wire.messages import Ref
from stoker.wire.object_keys import attempt_prefix

KINDS = {images.ROUTE: image_events.GENERATION, images.EDITS: image_events.EDIT}
IMAGE_BYTES = 64 * 1024 * 1024


async def answer(call: Call, request: OpenAIRequest) -> Response:
    """Answers a request for images. Raises ControlError."""
    schema = (call.endpoint.run.schema or {}).get("properties", {})
    if request.body is None or request.route not in KINDS or "image_format" not in schema:
        raise NotFound(f"{call.method} {request.route} is not served by {call.endpoint.id}")
    kind = KINDS[request.route]
    if kind == image_events.GENERATION:
        wanted = images.parse_images(request.body)
    else:
        wanted = await _from_image(call, images.parse_edit(request.body), schema)
    del request  # its image need not be kept until the answer
    if wanted.partial is None:
        return await call.while_connected(_made(call, wanted))
    [one] = wanted.inputs
    sides = _sides(one, schema)
    used = image_events.usage(one.get("prompt"), *sides, images=_images_in(one))
    return await streamed(call, one, _Streamed(call, kind, wanted.partial, sides, used).texts)


async def _from_image(
    call: Call, edit: images.ImagesRequest, schema: Mapping[str, Any]
) -> images.ImagesRequest:
    """Returns the request with the URLs of its images, and of the mask, in its inputs."""
    name = images.input_field(len(edit.sent), schema, call.endpoint.id)
    if edit.mask is not None and "mask_image" not in schema:
        raise BadRequest(
            f"mask: the pipeline of {call.endpoint.id} makes no part of an image anew: leave it out"
        )
    sent = [await url_of(call, "image", one) for one in edit.sent]
    urls: dict[str, Any] = {name: sent[0] if name == "image" else sent}
    if edit.mask is not None:
        urls["mask_image"] = await url_of(call, "mask", edit.mask)
    return replace(edit, inputs=[{**one, **urls} for one in edit.inputs], sent=(), mask=None)


def _images_in(one: Mapping[str, Any]) -> int:
    """Returns how many images an input names."""
    return len(one.get("images", [])) or int("image" in one)


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
        if not _has_image(one, of_ours=request.as_base64):
            return Answer(to_json(answers.error_body(500, _no_image(call))), 500, NOT_AGAIN)
    data = [await _image(call, one, as_base64=request.as_base64) for one in finished]
    return json_answer({"created": int(finished[0].view.created_at), "data": data})


def _has_image(finished: FinishedJob, *, of_ours: bool) -> bool:
    """Returns whether the output names an image; `of_ours`: in the object store of the job."""
    view, output = finished.view, finished.output
    url = output.get("image_url") if isinstance(output, dict) else None
    prefix = attempt_prefix(view.endpoint, view.id, view.attempt)
    return isinstance(url, str) and (not of_ours or prefix in unquote(urlsplit(url).path))


def _no_image(call: Call) -> str:
    return f"the output of {call.endpoint.id} has no image_url of a file that its job made"


async def _image(call: Call, finished: FinishedJob, *, as_base64: bool) -> dict[str, Any]:
    output = finished.output
    seed = {"seed": output["seed"]} if "seed" in output else {}
    if not as_base64:
        return {"url": output["image_url"], **seed}
    data = await _file(call, _key_of(output["image_url"], finished.view))
    return {"b64_json": data, **seed}


async def _file(call: Call, key: str) -> str:
    """Returns the file of an image in base64."""
    return base64.b64encode(await call.plane.artifacts.get(Ref(key, IMAGE_BYTES, ""))).decode()


def _key_of(url: str, view: JobView) -> str:
    """Returns the object's key, which is the end of its URL's path."""
    path, prefix = unquote(urlsplit(url).path), attempt_prefix(view.endpoint, view.id, view.attempt)
    return path[path.index(prefix) :]


def _sides(one: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the width and the height of the image; None for one that its endpoint does not declare."""
    width, height = (one.get(side, schema.get(side, {}).get("default")) for side in ("width", "height"))
    return width, height


class _Streamed(Struct, frozen=True):
    """An image whose previews are events; `partial` of them are wanted. `used`: its usage, if that is
    known."""

    call: Call
    kind: str
    partial: int
    sides: tuple[Any, Any]
    used: Mapping[str, Any] | None

    async def texts(self, events: Events) -> AsyncGenerator[bytes, None]:
        """Yields what a caller is sent. Previews of an attempt that was lost stay: others follow them."""
        sent = 0
        async with aclosing(events):
            async for event in events:
                if event.view is not None:
                    yield await self._last_text(event.view)
                    return
                preview = image_events.preview_of(from_json(event.value)) if event.kind == "chunk" else None
                if preview is not None and preview.is_due(sent, self.partial):
                    yield image_events.partial_image(self.kind, sent, preview, time.time())
                    sent += 1
        yield STOPPING

    async def _last_text(self, view: JobView) -> bytes:
        if not is_completed(view):
            return answers.event(answers.failed(view)[1])
        finished = FinishedJob(view, [])
        if not _has_image(finished, of_ours=True):
            return answers.event(answers.error_body(500, _no_image(self.call)))
        output = finished.output
        key = _key_of(output["image_url"], view)
        try:
            data = await _file(self.call, key)
        except ControlError as error:
            return answers.event(answers.error_body(error.status, str(error)))
        image_format = "png" if key.endswith(".png") else "jpeg"
        made = image_events.Made(
            data, image_format, "{}x{}".format(*self.sides), output.get("seed"), self.used
        )
        return image_events.completed(self.kind, made, time.time())
