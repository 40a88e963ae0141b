"""What the management API refuses, with which status, and in which words."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import pytest

from tests.control.http.management.managed import STRICT, Managed

IMAGE = "ghcr.io/example/worker:1.2"
JSON = {"Content-Type": "application/json"}

OPERATIONS = [
    (method, f"/{kind}{path}")
    for kind in ("templates", "endpoints", "pods", "networkvolumes", "keys")
    for method, path in [
        ("GET", ""),
        ("POST", ""),
        ("GET", "/someone"),
        ("PATCH", "/someone"),
        ("POST", "/someone/update"),
        ("DELETE", "/someone"),
    ]
]
OPERATIONS += [
    ("GET", "/containerregistryauth/someone"),
    ("DELETE", "/containerregistryauth/someone"),
    ("GET", "/nodes/someone"),
    ("DELETE", "/nodes/someone"),
]
BY_ID = [(method, path) for method, path in OPERATIONS if "someone" in path]
INVALID = ("DELETE", "/networkvolumes/someone")
"""The one operation whose interface knows no 404."""


def body_of(method: str) -> dict[str, Any]:
    return {"json": {}} if method in ("PATCH", "POST") else {}


async def refused(api: Managed, status: int, method: str, path: str, **requested: Any) -> str:
    answer = await api.http.request(method, path, **requested)
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "message", "status"}
    assert (body["error"], body["status"]) == (body["message"], status)
    return str(body["message"])


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_without_a_right_key_nothing_is_shown(api: Managed, method: str, path: str) -> None:
    for key, message in [("", "no token provided"), ("Bearer sk_000000000000_0", "invalid api key")]:
        error = await refused(api, 401, method, path, content=b"{", headers={**JSON, "Authorization": key})
        assert message in error


@pytest.mark.parametrize(("method", "path"), BY_ID)
async def test_an_id_of_no_form_and_one_of_nobody(api: Managed, method: str, path: str) -> None:
    status = 400 if (method, path) == INVALID else 404
    for wrong in ("someone", "UPPER", "a%20b", "-x", "x" * 64, "%F0%9F%98%80"):
        error = await refused(api, status, method, path.replace("someone", wrong), **body_of(method))
        assert repr(unquote(wrong)) in error
    assert "NUL" in await refused(api, 400, method, path.replace("someone", "a%00b"), **body_of(method))


async def test_a_secret_that_is_not_there(api: Managed) -> None:
    assert "someone" in await refused(api, 404, "DELETE", "/secrets/someone")


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"{", "not valid JSON"),
        (b'{"name": NaN}', "not valid JSON"),
        (b'{"name": "\xff"}', "not valid JSON"),
        (b'{"name": "\\ud800"}', "not valid JSON"),
        (b"[" * 300 + b"]" * 300, "not valid JSON"),
        (b'{"containerDiskInGb": 1e999}', "too large"),
        (b'{"name": "a\\u0000b"}', "name holds a NUL"),
        (b'{"a\\u0000b": 1}', "NUL"),
        (b'{"env": {"A": ["\\u0000"]}}', "env holds a NUL"),
        (b"[]", "the body"),
        (b'"text"', "the body"),
        (b"null", "the body"),
        (b"", "the body"),
        (b'{"name": ' + b"9" * 5_000 + b"}", "not valid JSON"),
    ],
)
async def test_a_body_that_cannot_be_read(api: Managed, sent: bytes, message: str) -> None:
    assert message in await refused(api, 400, "POST", "/templates", content=sent, headers=JSON)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "", "application/json; charset=utf-8", "x" * 3_000],
)
async def test_json_is_json_whatever_its_label(api: Managed, kind: str) -> None:
    """curl's -d calls it a form, as the examples of the documentation do."""
    headers = {"Content-Type": kind}
    assert "name is required" in await refused(api, 400, "POST", "/templates", content=b"{}", headers=headers)
    made = await api.http.post("/templates", content=b'{"name":"a","imageName":"x"}', headers=headers)
    changed = await api.http.patch(
        f"/templates/{made.json()['id']}", content=b'{"name":"b"}', headers=headers
    )
    assert (made.status_code, changed.status_code, changed.json()["name"]) == (200, 200, "b")


async def test_a_form_is_no_json(api: Managed) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    error = await refused(api, 400, "POST", "/templates", content=b"name=a", headers=headers)
    assert 'not valid JSON, and its Content-Type is "application/x-www-form-urlencoded"' in error


async def test_a_body_of_too_many_keys(api: Managed) -> None:
    many = b"{%b}" % b",".join(b'"k%d":1' % n for n in range(10_000))
    error = await refused(api, 400, "POST", "/templates", content=many, headers=JSON)
    assert "10,000 keys" in error


async def test_a_body_that_is_too_large(api: Managed) -> None:
    large = b" " * (1 << 20) + b"{}"

    async def body_parts() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 1 << 16):
            yield large[start : start + (1 << 16)]

    for content in (large, body_parts()):
        assert "larger than" in await refused(api, 413, "POST", "/templates", content=content, headers=JSON)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/templates", "GET, POST"),
        ("DELETE", "/endpoints", "GET, POST"),
        ("PUT", "/endpoints/someone", "DELETE, GET, PATCH"),
        ("GET", "/endpoints/someone/update", "POST"),
        ("POST", "/secrets", "GET"),
        ("GET", "/secrets/someone", "DELETE, PUT"),
        ("PATCH", "/containerregistryauth/someone", "DELETE, GET"),
        ("GET", "/pods/someone/restart", "POST"),
        ("POST", "/billing/pods", "GET"),
        ("POST", "/docs", "GET, HEAD"),
        ("DELETE", "/openapi.json", "GET, HEAD"),
    ],
)
async def test_another_method_is_answered_with_those_of_the_path(
    api: Managed, method: str, path: str, allowed: str
) -> None:
    answer = await api.http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["message"] == f"{method} is not allowed here; allowed: {allowed}"


async def test_a_path_that_is_not_there(api: Managed) -> None:
    for path in ("/nothing", "/templates/x/nothing", "/templates/", "/templates/a%0Ab/c"):
        await refused(api, 404, "GET", path)


async def test_a_question_that_is_not_known(api: Managed) -> None:
    error = await refused(api, 400, "GET", "/endpoints?includeWorker=true", headers=STRICT)
    assert error == (
        '"includeWorker" is not a known query parameter; allowed: after, includeHealth, includeTemplate, '
        "includeWorkers, limit"
    )
    assert "includeWorkers" in await refused(api, 400, "GET", "/endpoints?includeWorkers=maybe")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", 5, "valid string"),
        ("imageName", "", "at least 1 character"),
        ("imageName", "No Image", "tag or digest"),
        ("imageName", "local:/etc/passwd.py:handler", "local_roots"),
        ("imageName", "local:a\u2028.py:handler", "local_roots"),
        ("imageName", "local:stoker.functions", "functions = true"),
        ("category", "INTEL", "one of 'NVIDIA', 'AMD' or 'CPU'"),
        ("containerDiskInGb", -1, "greater than or equal to 0"),
        ("containerDiskInGb", "50", "valid integer"),
        ("containerDiskInGb", 50.5, "valid integer"),
        ("containerDiskInGb", True, "valid integer"),
        ("containerRegistryAuthId", "nobody", "there is none"),
        ("dockerEntrypoint", "sh", "valid list"),
        ("dockerStartCmd", [1], "valid string"),
        ("env", {"a=b": "x"}, "match pattern"),
        ("env", {"": "x"}, "match pattern"),
        ("env", {"A": 1}, "valid string; got a secret"),
        ("env", {"RUNPOD_INIT_TIMEOUT": "soon"}, "whole seconds"),
        ("env", {"A": "{{ STOKER_SECRET_none }}"}, "none"),
        ("isPublic", "yes", "valid boolean"),
        ("ports", ["8888"], "match pattern"),
        ("ports", "0/http", "match pattern"),
        ("ports", ["1000000/tcp"], "match pattern"),
        ("volumeMountPath", "workspace", "match pattern"),
        ("volumeMountPath", "/", "match pattern"),
        ("volumeMountPath", "/a/../../etc", "match pattern"),
        ("volumeMountPath", "/a/./b", "match pattern"),
        ("volumeMountPath", "/a\nb", "match pattern"),
        ("concurrency", 0, "greater than or equal to 1"),
        ("initTimeout", 0, "greater than or equal to 1"),
        ("preload", ["torch; import os"], "match pattern"),
        ("preload", ["torch"], "preload is for handlers of this host"),
        ("weights", ["flux-1-schnell"], "it has no"),
        ("limits", {"memoryMb": 1}, "greater than or equal to 16"),
    ],
)
async def test_of_a_template(api: Managed, field: str, value: object, message: str) -> None:
    body = {"name": "t", "imageName": IMAGE, field: value}
    error = await refused(api, 400, "POST", "/templates", json=body)
    assert field.partition(".")[0] in error
    assert message in error


async def test_a_templates_name_is_taken_once(api: Managed) -> None:
    first = await api.made("/templates", name="t", imageName=IMAGE)
    other = await api.made("/templates", name="u", imageName=IMAGE)
    error = await refused(api, 400, "POST", "/templates", json={"name": "t", "imageName": IMAGE})
    assert (first["id"] in error, "name" in error) == (True, True)
    await refused(api, 400, "PATCH", f"/templates/{other['id']}", json={"name": "t"})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "n" * 192, "at most 191 characters"),
        ("templateId", "nobody", "there is none"),
        ("templateId", "No Id", "there is none"),
        ("type", "BATCH", "one of 'QUEUE' or 'LOAD_BALANCER'"),
        ("computeType", "TPU", "one of 'GPU' or 'CPU'"),
        ("allowedCudaVersions", ["12.8", "1.2"], "12.8, 12.7"),
        ("minCudaVersion", "twelve", "match pattern"),
        ("minCudaVersion", "1.0", "13.0"),
        ("cpuFlavorIds", ["cpu3m"], "cpu3c, cpu3g, cpu5c, cpu5g"),
        ("dataCenterIds", ["MOON-1"], "EU-RO-1"),
        ("gpuTypeIds", ["NVIDIA A40", "GTX 9"], 'got "GTX 9"'),
        ("gpuTypeIds", "NVIDIA A40", "valid list"),
        ("gpuCount", 0, "greater than or equal to 1"),
        ("executionTimeoutMs", 4_999, "from 5000 to 604800000"),
        ("executionTimeoutMs", -1, "from 5000 to 604800000"),
        ("executionTimeoutMs", 604_800_001, "less than or equal to 604800000"),
        ("idleTimeout", 0, "greater than or equal to 1"),
        ("idleTimeout", 3_601, "less than or equal to 3600"),
        ("networkVolumeId", "nobody", "there is none"),
        ("networkVolumeIds", ["nobody"], "there is none"),
        ("scalerType", "NONE", "one of 'QUEUE_DELAY' or 'REQUEST_COUNT'"),
        ("scalerValue", 0, "greater than or equal to 1"),
        ("workersMin", -1, "greater than or equal to 0"),
        ("workersMin", 4, "workersMin must be at most workersMax; got 4 and 3"),
        ("gpuMemoryShare", 0, "greater than 0"),
        ("instanceIds", ["large"], "match pattern"),
        ("gpuCount", 1 << 31, "less than or equal to 2147483647"),
    ],
)
async def test_of_an_endpoint(api: Managed, field: str, value: object, message: str) -> None:
    template = await api.made("/templates", name="t", imageName=IMAGE)
    body = {"templateId": template["id"], field: value}
    error = await refused(api, 400, "POST", "/endpoints", json=body)
    assert field in error
    assert message in error
    assert [one["id"] for one in (await api.http.get("/endpoints")).json()] == ["echo"], "nothing was stored"
    if field in ("type", "computeType"):
        return  # of a new one only
    made = await api.made("/endpoints", templateId=template["id"])
    error = await refused(api, 400, "PATCH", f"/endpoints/{made['id']}", json={field: value})
    assert field in error
    assert (await api.http.get(f"/endpoints/{made['id']}")).json() == made


async def test_a_template_is_required(api: Managed) -> None:
    assert "templateId is required" in await refused(api, 400, "POST", "/endpoints", json={})


async def test_a_compressed_body(api: Managed) -> None:
    content = json.dumps({"name": "t", "imageName": "acme/w:1"}).encode()
    headers = {"Content-Type": "application/json"}
    packed = gzip.compress(content)
    made = await api.http.post("/templates", content=packed, headers={**headers, "Content-Encoding": "gzip"})
    assert (made.status_code, made.json()["name"]) == (200, "t")
    refused = await api.http.post("/templates", content=packed, headers={**headers, "Content-Encoding": "br"})
    assert (refused.status_code, refused.headers["accept-encoding"]) == (415, "gzip, deflate")
    bomb = gzip.compress(b" " * 3_000_000)
    large = await api.http.post("/templates", content=bomb, headers={**headers, "Content-Encoding": "gzip"})
    assert large.status_code == 413
