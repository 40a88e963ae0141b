"""The handler of a queue endpoint of an app: `stoker.worker.functions.handler:Functions`.

    live        the job's input has the function, its code and its arguments
    deployed    the code is in the endpoint's variables, and the input is the arguments

Arguments and results that refer to bytes go through files: an argument's URL is fetched by the platform, and
a result's file is uploaded by it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stoker.app_values import TAG
from stoker.worker.functions.code import (
    PACKED_MAX,
    Code,
    CodeRefused,
    FunctionCall,
    deployed_call,
    read_call,
    read_code,
    version_content,
)
from stoker.worker.functions.runner import Runner
from stoker.worker.job.job import Job
from stoker.worker.sdk import Device, File

ARGUMENT_MAX = 1 << 30
"""Bytes of one argument that is fetched."""

_CONCURRENT_MAX = 1000


class Functions:
    async def setup(self, device: Device) -> None:
        """Installs and starts the code of a deployed endpoint."""
        self._runner = Runner(_concurrent(os.environ))
        self._deployed: tuple[Code, list[Mapping[str, str]]] | None = None
        content = version_content(os.environ)
        if content is not None:
            self._deployed = read_code(content), content["functions"]
            await self._runner.prepare(self._deployed[0], _print)

    async def run(self, job: Job) -> Any:
        code, call = await self._read(job)
        await _fetch(job, list(call.kwargs.values()))
        message = {
            "module": call.module,
            "callable": call.callable,
            "kwargs": call.kwargs,
            "scratch": str(job.scratch),
        }

        def log(line: str) -> None:
            _print(line)
            job.progress({"phase": "installing", "line": line})

        result = await self._runner.call(code, message, log, job.progress, job.emit)
        _hand_over(result)
        return result

    async def close(self) -> None:
        await self._runner.close()

    async def _read(self, job: Job) -> tuple[Code, FunctionCall]:
        if self._deployed is not None:
            code, functions = self._deployed
            return code, deployed_call(functions, job.input)
        if not isinstance(job.input, dict):
            raise CodeRefused("the input must be an object with function, bundle and kwargs")
        code = read_code(job.input)
        if code.url:
            packed = await job.fetch_async(code.url, max_bytes=PACKED_MAX)
            code = replace(code, url="", packed=packed.path.read_text(encoding="ascii", errors="replace"))
        return code, read_call(job.input)


def _concurrent(environ: Mapping[str, str]) -> int:
    text = environ.get("STOKER_FUNCTIONS_CONCURRENCY", "1")
    return min(max(int(text), 1), _CONCURRENT_MAX) if text.isdigit() else 1


async def _fetch(job: Job, arguments: Any) -> None:
    """Replaces each URL of bytes by the file that it is fetched to. A file that a caller names is refused: it
    would be one of the worker's own."""
    for tagged in list(_tagged(arguments)):
        if "file" in tagged:
            raise CodeRefused("an argument must have data or url; got file")
        if isinstance(tagged.get("url"), str):
            fetched = await job.fetch_async(tagged.pop("url"), max_bytes=ARGUMENT_MAX)
            tagged["file"] = str(fetched.path)


def _hand_over(result: Any) -> None:
    """Replaces each file of bytes by a File, which the platform replaces by a URL."""
    for tagged in list(_tagged(result)):
        if "file" in tagged:
            tagged["url"] = File(tagged.pop("file"), "application/octet-stream")


def _tagged(value: Any) -> Iterator[dict[str, Any]]:
    """Yields the objects that stand for bytes and arrays, and no caller's own object that looks like one of
    these.
    """
    if isinstance(value, list):
        for one in value:
            yield from _tagged(one)
    elif isinstance(value, dict):
        if value.get(TAG) in ("bytes", "array"):
            yield value
            return
        inner = value.get("value") if value.get(TAG) == "object" else value
        for one in inner.values() if isinstance(inner, dict) else ():
            yield from _tagged(one)


def _print(line: str) -> None:
    print(line, flush=True)
