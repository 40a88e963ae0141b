"""What a resource names is deleted between the look at it and the moment in which the resource is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.control.http.management.managed import Managed

IMAGE = "ghcr.io/a/b:1"
NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "networkVolumeId": ("/networkvolumes", {"name": "v", "size": 1, "dataCenterId": "EU-RO-1"}),
    "containerRegistryAuthId": ("/containerregistryauth", {"name": "r", "username": "u", "password": "p"}),
}


class Meanwhile:
    """Commits, of which the first comes after something that another caller did."""

    def __init__(self, commits: Any, other: Callable[[], Awaitable[None]]) -> None:
        self._commits, self._other = commits, other
        self._came = False

    async def commit(self, fn: Any, early: Any = None) -> Any:
        if not self._came:
            self._came = True
            await self._other()
        return await self._commits.commit(fn, early)

    async def read(self, fn: Any) -> Any:
        return await self._commits.read(fn)


async def named(api: Managed, what: str) -> tuple[dict[str, Any], str]:
    """The field that names one of this kind, and its path."""
    if what == "env":
        assert (await api.http.put("/secrets/s", json={"value": "x"})).status_code == 200
        return {"env": {"A": "{{ STOKER_SECRET_s }}"}}, "/secrets/s"
    path, name = NAMES[what]
    made = (await api.made(path, **name))["id"]
    return {what: made}, f"{path}/{made}"


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("endpoints", "networkVolumeId"),
        ("templates", "containerRegistryAuthId"),
        ("templates", "env"),
        ("pods", "networkVolumeId"),
        ("pods", "containerRegistryAuthId"),
        ("pods", "env"),
    ],
)
async def test_it_is_not_used(
    api: Managed, monkeypatch: pytest.MonkeyPatch, kind: str, what: str, update: bool
) -> None:
    if (kind, what, update) == ("pods", "networkVolumeId", True):
        return  # a pod keeps the volume that it was made with
    requested: dict[str, Any] = {"name": "n", "imageName": IMAGE}
    if kind == "pods":
        requested["desiredStatus"] = "EXITED"
    elif kind == "endpoints":
        template = await api.made("/templates", name="t", imageName=IMAGE)
        requested = {"name": "n", "templateId": template["id"]}
    path = f"/{kind}"
    if update:
        path += f"/{(await api.made(path, **requested))['id']}/update"
        requested = {}
    field, gone = await named(api, what)
    before = (await api.http.get(f"/{kind}")).json()

    async def other() -> None:
        assert (await api.http.delete(gone)).status_code == 204

    resources = getattr(api.management, kind)
    monkeypatch.setattr(resources, "_commits", Meanwhile(api.world.commits, other))
    answer = await api.http.post(path, json=requested | field)
    assert (answer.status_code, "has just been deleted" in answer.json()["message"]) == (400, True)
    assert (await api.http.get(f"/{kind}")).json() == before


async def test_a_secret_of_a_template_goes_while_an_endpoint_is_made_from_it(
    api: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, gone = await named(api, "env")
    template = await api.made("/templates", name="t", imageName=IMAGE, **field)

    async def other() -> None:
        run = api.world.store.writer.run
        run("INSERT INTO accounts (id, created_at) VALUES ('another', 0)", {})
        run("UPDATE templates SET account = 'another'", {})
        assert (await api.http.delete(gone)).status_code == 204

    monkeypatch.setattr(api.management.endpoints, "_commits", Meanwhile(api.world.commits, other))
    answer = await api.http.post("/endpoints", json={"templateId": template["id"]})
    assert (answer.status_code, "has just been deleted" in answer.json()["message"]) == (400, True)
