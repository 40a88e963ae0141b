"""Names that nobody knows: ignored and listed, or refused where the caller asks for that."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.http.calls.ignored import NAMES_MOST, header_value
from stoker.control.http.management.unknown import NOT_ACTED_ON
from tests.control.http.management.managed import STRICT, Managed
from tests.control.http.management.pods.pod_world import FACTS, joined, once

IMAGE = "ghcr.io/example/worker:1.2"
IGNORED = "stoker-ignored"

BODIES: dict[str, dict[str, Any]] = {
    "/templates": {"name": "t", "imageName": IMAGE},
    "/networkvolumes": {"name": "v", "size": 1, "dataCenterId": "EU-RO-1"},
    "/containerregistryauth": {"name": "r", "username": "u", "password": "p"},
    "/pods": {"imageName": IMAGE, "desiredStatus": "EXITED"},
    "/endpoints": {},
}
OTHERS = {"dockerArgs": "python -u x.py", "startSsh": True}


async def body(api: Managed, path: str) -> dict[str, Any]:
    if path != "/endpoints":
        return BODIES[path]
    return {"templateId": (await api.made("/templates", **BODIES["/templates"]))["id"]}


@pytest.mark.parametrize("path", BODIES)
async def test_fields_of_a_new_one(api: Managed, path: str, caplog: pytest.LogCaptureFixture) -> None:
    fields = await body(api, path)
    with caplog.at_level(logging.DEBUG, "stoker.control.http.management.unknown"):
        refused = await api.http.post(path, json=fields | OTHERS, headers=STRICT)
        assert (refused.status_code, IGNORED in refused.headers) == (400, False)
        assert refused.json()["error"] == "dockerArgs is not a known field; startSsh is not a known field"
        made = await api.http.post(path, json=fields | OTHERS)
    assert made.status_code in (200, 201), made.text
    assert made.headers[IGNORED] == "dockerArgs, startSsh"
    assert caplog.messages == [f"POST /v1{path}: ignored dockerArgs, startSsh"]
    assert OTHERS.keys().isdisjoint(made.json())


@pytest.mark.parametrize("path", BODIES.keys() - {"/containerregistryauth"})
async def test_fields_of_a_change(api: Managed, path: str) -> None:
    made = await api.made(path, **await body(api, path))
    for method, address in (("PATCH", f"{path}/{made['id']}"), ("POST", f"{path}/{made['id']}/update")):
        refused = await api.http.request(method, address, json=OTHERS, headers=STRICT)
        assert refused.status_code == 400
        changed = await api.http.request(method, address, json=OTHERS)
        assert (changed.status_code, changed.headers[IGNORED]) == (200, "dockerArgs, startSsh")


async def test_the_document_names_the_fields_that_have_no_effect(api: Managed) -> None:
    shapes = (await api.http.get("/openapi.json")).json()["components"]["schemas"]
    for shape, names in NOT_ACTED_ON.items():
        assert all(f"`{name}`" in shapes[shape]["description"] for name in names)
        assert names.keys().isdisjoint(shapes[shape]["properties"]), "these are acted on"
        for instead in filter(None, names.values()):
            assert shapes[shape]["properties"].keys() & set(instead.split()), instead


async def test_fields_within_fields(api: Managed) -> None:
    limits = {"memoryMb": 64, "disk": 5, "x": {"y": 1}}
    made = await api.http.post("/templates", json=BODIES["/templates"] | {"limits": limits})
    assert made.headers[IGNORED] == "limits.disk, limits.x"
    assert made.json()["limits"]["memoryMb"] == 64
    assert "disk" not in made.json()["limits"]


async def test_what_was_ignored_is_listed_with_a_refusal_too(api: Managed) -> None:
    refused = await api.http.post("/templates", json={"name": "t", "imagename": IMAGE})
    assert refused.json()["error"] == "imageName is required and missing"
    assert (refused.status_code, refused.headers[IGNORED]) == (400, "imagename")


LISTS = (
    "/endpoints",
    "/templates",
    "/pods",
    "/networkvolumes",
    "/containerregistryauth",
    "/nodes",
    "/keys",
    "/secrets",
    "/audit",
    "/billing/endpoints",
    "/billing/pods",
    "/billing/networkvolumes",
    "/endpoints/echo",
)


@pytest.mark.parametrize("path", LISTS)
async def test_questions(api: Managed, path: str) -> None:
    response = await api.http.get(path, params={"page": "2", "_": "1"})
    assert (response.status_code, response.headers[IGNORED]) == (200, "?page, ?_")
    refused = await api.http.get(path, params={"page": "2"}, headers=STRICT)
    assert refused.status_code == 400
    assert '"page" is not a known query parameter; allowed:' in refused.json()["error"]
    assert IGNORED not in (await api.http.get(path)).headers


@pytest.mark.parametrize(
    "prefer", ["handling=strict", "respond-async, handling=strict", "Handling = Strict; x=1"]
)
async def test_how_strictness_is_requested(api: Managed, prefer: str) -> None:
    assert (await api.http.get("/pods?x=1", headers={"Prefer": prefer})).status_code == 400
    for other in ("handling=lenient", "respond-async", ""):
        assert (await api.http.get("/pods?x=1", headers={"Prefer": other})).status_code == 200


async def test_a_name_of_any_characters_makes_one_header_line(api: Managed) -> None:
    names = {"a\r\nSet-Cookie: b": 1, "größe": 1, "a,b": 1, "": 1, "x" * 5_000: 1}
    made = await api.http.post("/templates", json=BODIES["/templates"] | names)
    wanted = f"a%0D%0ASet-Cookie%3A b, gr%C3%B6%C3%9Fe, a%2Cb, , {'x' * 100}"
    assert (made.status_code, made.headers[IGNORED]) == (200, wanted)
    assert "set-cookie" not in made.headers
    many = await api.http.get("/pods", params={f"q{n}": "1" for n in range(NAMES_MOST + 7)})
    assert many.headers[IGNORED].endswith(f"?q{NAMES_MOST - 1}, and 7 more")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_header_holds_characters_that_a_header_may_hold(names: list[str]) -> None:
    line = header_value(names)
    assert line.isascii()
    assert line.isprintable()


LOOSE: list[tuple[str, dict[str, Any]]] = [
    ("/templates", {"name": ""}),
    ("/templates", {"name": "n" * 500, "readme": "r" * 100_000}),
    ("/templates", {"env": {"1A": "x", "a-b.c d": "y", "größe": "z", "N" * 300: "w"}}),
    ("/templates", {"dockerStartCmd": ["", "x" * 100_000]}),
    ("/networkvolumes", {"name": ""}),
    ("/networkvolumes", {"name": "n" * 500}),
    ("/containerregistryauth", {"name": "", "username": ""}),
    ("/pods", {"name": ""}),
    ("/pods", {"countryCodes": ["Netherlands"], "minRAMPerGPU": 1 << 30, "minDownloadMbps": 1e12}),
    ("/pods", {"env": {"1A": "x", "a-b": "y"}, "gpuCount": 5_000, "vcpuCount": 5_000}),
    ("/endpoints", {"gpuCount": 5_000, "scalerValue": 1 << 30}),
    ("/endpoints", {"computeType": "CPU", "vcpuCount": 5_000}),
]
"""What the published document allows."""


@pytest.mark.parametrize(("path", "fields"), LOOSE)
async def test_bounds_are_the_published_ones(api: Managed, path: str, fields: dict[str, Any]) -> None:
    made = await api.made(path, **await body(api, path) | fields)
    shown = made if path == "/containerregistryauth" else (await api.http.get(f"{path}/{made['id']}")).json()
    for name in fields.keys() & shown.keys():
        assert shown[name] == fields[name]
    if path != "/containerregistryauth":
        changed = await api.http.patch(f"{path}/{made['id']}", json={"name": ""})
        name = "t" if path == "/endpoints" else ""  # an endpoint without a name has its template's
        assert (changed.status_code, changed.json()["name"]) == (200, name)


async def test_odd_names_of_variables_reach_the_worker(api: Managed) -> None:
    env = {"1A": "x", "a-b.c d": "y"}
    template = await api.made("/templates", name="t", imageName=IMAGE, env=env)
    made = await api.made("/endpoints", templateId=template["id"])
    assert made["env"] == env
    assert api.management.endpoints.get("default", made["id"]).run.env == env


@once
async def test_a_pod_goes_where_the_driver_is_new_enough() -> None:
    async with joined("node-1", facts=FACTS | {"cuda": "12.4"}) as (api, _, _):
        requested = {"imageName": IMAGE, "minCudaVersion": "12.8"}
        refused = await api.http.post("/pods", json=requested)
        assert (refused.status_code, "with CUDA 12.8 or later" in refused.json()["error"]) == (400, True)
        made = await api.http.post("/pods", json=requested | {"minCudaVersion": "12.4"})
        assert (made.status_code, IGNORED in made.headers) == (201, False)
