"""The handler of a queue endpoint of an app: `stoker.worker.functions.handler:Functions`.

    live        the job's input has the function, its code and its arguments
    deployed    the code is in the endpoint's variables, and the input is the arguments

Arguments and results that refer to bytes go through files: an argument's URL is fetched by the platform, and
a result's file is uploaded by it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
from stoker.worker.functions.values import TAG
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
        message = {
            "module": call.module,
            "callable": call.callable,
            "kwargs": await _fetched(job, call.kwargs),
            "scratch": str(job.scratch),
        }

        def log(line: str) -> None:
            _print(line)
            job.progress({"phase": "installing", "line": line})

        return _with_files(await self._runner.call(code, message, log, job.progress, job.emit))

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


async def _fetched(job: Job, value: Any) -> Any:
    """The arguments with each URL of bytes replaced by the file that it was fetched to. A file that a caller
    names is refused: it would be one of the worker's own."""
    if isinstance(value, list):
        return [await _fetched(job, one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get(TAG) in ("bytes", "array"):
        if "file" in value:
            raise CodeRefused("an argument must have data or url; got file")
        if isinstance(value.get("url"), str):
            fetched = await job.fetch_async(value["url"], max_bytes=ARGUMENT_MAX)
            return {**{key: one for key, one in value.items() if key != "url"}, "file": str(fetched.path)}
        return value
    return {key: await _fetched(job, one) for key, one in value.items()}


def _with_files(value: Any) -> Any:
    """The result with each file of bytes as a File, which the platform replaces by a URL."""
    if isinstance(value, list):
        return [_with_files(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get(TAG) in ("bytes", "array") and "file" in value:
        file = File(value["file"], "application/octet-stream")
        return {**{key: one for key, one in value.items() if key != "file"}, "url": file}
    return {key: _with_files(one) for key, one in value.items()}


def _print(line: str) -> None:
    print(line, flush=True)
