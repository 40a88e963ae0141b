"""Calls of an app's functions by name: `caption.remote(image, words=5)` runs it on a worker, and waits.

    STOKER_DEV_SERVER is set   `stoker dev` runs it at that address, with the code as it is now
    it is not                  the deployed endpoint of its name runs it, on the platform of STOKER_URL

In an async program, `Remote` waits without stopping the others.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2

from stoker.app_values import encode
from stoker.client.api import Client
from stoker.client.apps.remote import bound_arguments, declared, received
from stoker.client.apps.scanned import Endpoint
from stoker.client.errors import ClientError, JobFailed, NotFound, Unreachable
from stoker.client.records import JobRecord

DEV_SERVER = "STOKER_DEV_SERVER"
CALL = "/-/call"
"""The path of the development server for calls of a function that a file and a name tell apart."""


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Returns the function's result. Raises JobFailed, whose message has the traceback; ClientError if nobody
    runs it; TypeError or ValueRefused for arguments that it does not take, or that cannot be sent."""
    endpoint, definition, root = declared(function)
    values = bound_arguments(function, args, kwargs)
    qualname = function.__qualname__
    if server := os.environ.get(DEV_SERVER):
        return received(_at_dev_server(server, root / endpoint.path, qualname, values).output)
    name = definition.name or endpoint.name
    with Client(ca_file=os.environ.get("STOKER_TLS_CA") or None) as stoker:
        return received(_deployed(stoker, name, endpoint, qualname, values).output)


def _at_dev_server(server: str, file: Path, qualname: str, values: Mapping[str, Any]) -> JobRecord:
    body = {"input": {name: encode(value, where=name) for name, value in values.items()}}
    asked = {"file": str(file), "function": qualname}
    try:
        with httpx2.Client(timeout=None, trust_env=False) as http:
            answer = http.post(f"{server.rstrip('/')}{CALL}", params=asked, json=body)
    except httpx2.HTTPError as error:
        why = str(error) or type(error).__name__
        raise Unreachable(f"no answer from stoker dev at {server}, which {DEV_SERVER} names: {why}") from None
    content = answer.json()
    if "status" not in content:
        raise ClientError(f"stoker dev refused {qualname}: {content.get('error')}")
    record = JobRecord.read(content)
    if not record.succeeded:
        raise JobFailed(record)
    return record


def _deployed(
    stoker: Client, name: str, endpoint: Endpoint, qualname: str, values: Mapping[str, Any]
) -> JobRecord:
    named = [one for one in stoker.manage.endpoints.list() if one["name"] == name]
    if not named:
        raise NotFound(
            f"no endpoint is named {name}: deploy {endpoint.target} with stoker deploy, or run this"
            " program with stoker dev --once",
            404,
        )
    there = str(named[-1]["id"])

    def store(data: bytes) -> Mapping[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "argument")
            path.write_bytes(data)
            return {"url": stoker.upload(there, path)}

    sent = {name: encode(value, store, where=name) for name, value in values.items()}
    if len(endpoint.functions) > 1:
        sent["method"] = qualname.rpartition(".")[2]
    return stoker.wait(there, stoker.run(there, sent).id)
