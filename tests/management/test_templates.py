"""Templates over HTTP."""

from __future__ import annotations

from managed import Managed

IMAGE = "ghcr.io/example/worker:1.2"


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
