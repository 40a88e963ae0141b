"""Calls of an app's functions at their live endpoints, from a program of one's own.

    from stoker.client import AsyncClient, Remote
    from captions import caption

    async with AsyncClient() as stoker:
        there = Remote(caption, "jpnw0v75y3qoql", stoker)
        print(await there(image, words=5))

The source is read when `Remote` is made. A deployed endpoint needs none of this: `stoker.runsync` calls it.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2

from stoker.app_values import decode
from stoker.client.apps.bundle import bundle
from stoker.client.apps.definition import MARK, Definition, DefinitionError
from stoker.client.apps.requests import function_request
from stoker.client.apps.scanned import Endpoint
from stoker.client.apps.source import scan_source
from stoker.client.async_api import AsyncClient
from stoker.client.errors import ClientError, Unreachable

DOWNLOAD_S = 60.0


class Remote:
    """A function that is called at its live endpoint. `function` is decorated, or a method of a decorated
    class, as `Search.add`. `endpoint` is the id of its live endpoint. Raises DefinitionError for another
    function, BundleError if it cannot be sent."""

    def __init__(self, function: Callable[..., Any], endpoint: str, client: AsyncClient) -> None:
        self._function, self._id, self._client = function, endpoint, client
        self._endpoint, self._definition, root = declared(function)
        self._bundle = bundle(root, self._endpoint.path)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the function's result. Raises JobFailed, whose message has the traceback; ClientError if
        the result cannot be fetched; TypeError or ValueRefused for arguments that the function does not take,
        or that cannot be sent."""
        bound = bound_arguments(self._function, args, kwargs)
        request = await asyncio.to_thread(
            function_request,
            self._endpoint,
            self._function.__qualname__,
            bound,
            self._bundle,
            self._definition,
            upload=uploading(self._client, self._id, asyncio.get_running_loop()),
        )
        job = await self._client.run(self._id, request)
        record = await self._client.wait(self._id, job.id)
        return await asyncio.to_thread(received, record.output)


def bound_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of a call by name. Raises TypeError for those that the function does not take."""
    signature = inspect.signature(function)
    instance = ("self",) if _is_method(function) else ()
    bound = signature.bind(*instance, *args, **kwargs).arguments
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            bound |= bound.pop(parameter.name, {})
    return dict(list(bound.items())[len(instance) :])


def uploading(
    client: AsyncClient, endpoint: str, loop: asyncio.AbstractEventLoop
) -> Callable[[bytes, str], str]:
    """Returns an upload for `function_request` that other threads than the loop's may call."""

    def upload(data: bytes, name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(data)
            return asyncio.run_coroutine_threadsafe(client.upload(endpoint, path), loop).result()

    return upload


def declared(function: Callable[..., Any]) -> tuple[Endpoint, Definition, Path]:
    """Returns the endpoint of the function, its definition as its module made it, and the app's folder."""
    module = sys.modules[function.__module__]
    target = function.__qualname__.partition(".")[0]
    definition = getattr(getattr(module, target, None), MARK, None)
    file = getattr(module, "__file__", None)
    if not isinstance(definition, Definition) or file is None:
        raise DefinitionError(f"{function.__qualname__} has no endpoint; decorate it with @endpoint(...)")
    name = Path(file).stem if module.__name__ == "__main__" else module.__name__
    root = Path(file).resolve().parents[name.count(".")]
    path = Path(file).resolve().relative_to(root).as_posix()
    found, _ = scan_source(Path(file).read_text(encoding="utf-8-sig"), path)
    endpoint = next((one for one in found if one.target == target), None)
    if endpoint is None:
        raise DefinitionError(f"{target} is not decorated at the top level of {path}")
    return endpoint, definition, root


def _is_method(function: Callable[..., Any]) -> bool:
    return "." in function.__qualname__ and next(iter(inspect.signature(function).parameters), "") == "self"


def received(output: Any) -> Any:
    """Returns the result of a function from its job's output, and fetches what is stored. Raises
    ClientError."""
    if isinstance(output, dict) and output.keys() == {"output_url", "size", "sha256"}:
        content = _get(output["output_url"])
        if hashlib.sha256(content).hexdigest() != output["sha256"]:
            raise ClientError("the result that was fetched is not the one that the job has stored")
        output = json.loads(content)
    return decode(output, lambda tagged: _get(tagged["url"]))


def _get(url: str) -> bytes:
    """Raises ClientError, without the URL: that is a key to what it names."""
    try:
        response = httpx2.get(url, timeout=DOWNLOAD_S, follow_redirects=True)
    except httpx2.HTTPError as error:
        raise Unreachable(f"the result cannot be fetched: {error or type(error).__name__}") from None
    if not response.is_success:
        raise ClientError(
            f"the result cannot be fetched: its URL, which expires, gave {response.status_code}"
        )
    return response.content
