"""Templates over HTTP."""

from __future__ import annotations

from tests.control.http.management.managed import Managed

IMAGE = "ghcr.io/example/worker:1.2"


async def test_an_empty_registry_auth_takes_it_away(api: Managed) -> None:
    login = (await api.made("/containerregistryauth", name="r", username="u", password="p"))["id"]
    made = await api.made("/templates", name="t", imageName=IMAGE, containerRegistryAuthId=login)
    path = f"/templates/{made['id']}"
    endpoint = await api.made("/endpoints", templateId=made["id"])
    for nothing in ("", None):
        changed = await api.http.patch(path, json={"containerRegistryAuthId": nothing})
        assert (changed.status_code, "containerRegistryAuthId" in changed.json()) == (200, False)
        assert "containerRegistryAuthId" not in (await api.http.get(path)).json()
        again = await api.http.patch(path, json={"containerRegistryAuthId": login})
        assert again.json()["containerRegistryAuthId"] == login
    await api.http.patch(path, json={"containerRegistryAuthId": ""})
    assert (await api.http.get(f"/endpoints/{endpoint['id']}")).json()["version"] == 6, "one for each change"
    run = api.management.endpoints.get("default", endpoint["id"]).run
    assert run.registry is None
    assert (await api.http.delete(f"/containerregistryauth/{login}")).status_code == 204
    other = await api.made("/templates", name="u", imageName=IMAGE, containerRegistryAuthId="")
    assert "containerRegistryAuthId" not in other


async def test_a_template_is_created_read_changed_and_deleted(api: Managed) -> None:
    made = await api.made("/templates", name="t", imageName=IMAGE)
    assert made["ports"] == ["8888/http", "22/tcp"]
    assert made["containerDiskInGb"] == 50

    path = f"/templates/{made['id']}"
    assert (await api.http.get("/templates")).json() == [made]
    assert (await api.http.get(path)).json() == made

    changed = await api.http.patch(path, json={"readme": "words"})
    assert changed.json() == made | {"readme": "words"}
    assert (await api.http.post(path + "/update", json={"readme": ""})).json() == made

    gone = await api.http.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await api.http.get(path)).status_code == 404
