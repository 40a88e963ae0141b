"""Registry auths over HTTP: what comes in is used for pulls, and never seen again."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from stoker.control.config.settings import PlaneSettings
from stoker.control.errors import BadRequest
from stoker.control.store.database.opening import open_store
from stoker.control.store.database.secrets import random_secrets
from stoker.control.store.resources.registries import Registry, add_registry, registry_login
from stoker.wire.messages import RegistryAuth
from tests.control.http.management.managed import Managed, managed

AUTHS = "/containerregistryauth"
PASSWORD = "my-password-of-nobody"
REQUEST = {"name": "my creds", "username": "my-username", "password": PASSWORD}


async def test_one_is_created_listed_read_and_deleted(api: Managed) -> None:
    answer = await api.http.post(AUTHS, json=REQUEST)
    assert answer.status_code == 200
    made = answer.json()
    assert made.keys() == {"id", "name"}
    assert made["name"] == "my creds"
    path = f"{AUTHS}/{made['id']}"
    assert (await api.http.get(AUTHS)).json() == [made]
    assert (await api.http.get(path)).json() == made
    gone = await api.http.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await api.http.get(AUTHS)).json() == []
    assert (await api.http.get(path)).status_code == 404


async def test_it_is_used_for_pulls_after_a_restart_too(api: Managed) -> None:
    made = await api.made(AUTHS, **REQUEST)
    login = RegistryAuth("my-username", PASSWORD)
    assert await api.management.registries.login("default", made["id"]) == login
    await api.again()
    assert await api.management.registries.login("default", made["id"]) == login
    with pytest.raises(BadRequest, match="containerRegistryAuthId must be the id of a registry auth"):
        await api.management.registries.login("another", made["id"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "name: "),
        ({"username": 7}, "username: "),
        ({"password": 7}, "password: "),
        ({"password": ""}, "password: "),
    ],
)
async def test_a_bad_body_names_the_field_and_never_the_password(api: Managed, changes, message) -> None:
    answer = await api.http.post(AUTHS, json=REQUEST | changes)
    assert answer.status_code == 400
    assert message in answer.json()["error"]
    assert PASSWORD not in answer.text
    assert (await api.http.get(AUTHS)).json() == []


@pytest.mark.parametrize("field", REQUEST)
async def test_every_field_is_required(api: Managed, field: str) -> None:
    answer = await api.http.post(AUTHS, json={name: REQUEST[name] for name in REQUEST if name != field})
    assert answer.status_code == 400
    assert answer.json()["error"] == f"{field} is required and missing"


async def test_a_name_is_had_once(api: Managed) -> None:
    await api.made(AUTHS, **REQUEST)
    answer = await api.http.post(AUTHS, json=REQUEST)
    assert answer.status_code == 400
    assert "a registry auth of the name 'my creds'" in answer.json()["error"]


async def test_ids_that_are_none(api: Managed) -> None:
    for bad in ("A B", "-x", "x" * 64):
        for method in ("GET", "DELETE"):
            assert (await api.http.request(method, f"{AUTHS}/{bad}")).status_code == 404
    assert (await api.http.get(f"{AUTHS}/unknown")).status_code == 404
    assert (await api.http.delete(f"{AUTHS}/unknown")).status_code == 404


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_no_key_no_answer(api: Managed, method: str) -> None:
    path = f"{AUTHS}/x" if method == "DELETE" else AUTHS
    for key in ("Bearer sk_wrong", ""):
        answer = await api.http.request(method, path, headers={"authorization": key})
        assert answer.status_code == 401


async def test_one_in_use_is_kept(api: Managed) -> None:
    made = await api.made(AUTHS, **REQUEST)
    template = await api.made(
        "/templates", name="private", imageName="ghcr.io/a/b:1", containerRegistryAuthId=made["id"]
    )
    answer = await api.http.delete(f"{AUTHS}/{made['id']}")
    assert answer.status_code == 400
    assert f"in use by template {template['id']} (private)" in answer.json()["error"]
    await api.http.delete(f"/templates/{template['id']}")
    assert (await api.http.delete(f"{AUTHS}/{made['id']}")).status_code == 204


async def test_those_of_the_file_are_seen_used_and_left_alone() -> None:
    login = RegistryAuth("robot", PASSWORD)
    async with managed(settings=PlaneSettings(registries={"ghcr": login})) as api:
        expected = {"id": "ghcr", "name": "ghcr"}
        assert (await api.http.get(AUTHS)).json() == [expected]
        assert (await api.http.get(f"{AUTHS}/ghcr")).json() == expected
        assert await api.management.registries.login("default", "ghcr") == login
        answer = await api.http.delete(f"{AUTHS}/ghcr")
        assert answer.status_code == 400
        assert "declared in the configuration file" in answer.json()["error"]
        answer = await api.http.post(AUTHS, json=REQUEST | {"name": "ghcr"})
        assert answer.status_code == 400


async def test_nothing_ever_shows_the_password(api: Managed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    responses = [await api.http.post(AUTHS, json=REQUEST) for _ in range(2)]
    path = f"{AUTHS}/{responses[0].json()['id']}"
    responses += [await api.http.get(AUTHS), await api.http.get(path), await api.http.delete(path)]
    responses.append(await api.http.post(AUTHS, content=json.dumps(REQUEST)[:-1]))
    texts = [str(one.headers) + one.text for one in responses] + [
        record.getMessage() for record in caplog.records
    ]
    assert not [text for text in texts if PASSWORD in text or "my-username" in text]
    assert PASSWORD not in repr(RegistryAuth("u", PASSWORD))


def test_the_file_holds_no_clear_text(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db", secrets=random_secrets())
    store.writer.begin()
    add_registry(store.writer, "default", Registry("r1", "n"), RegistryAuth("my-username", PASSWORD), 1.0)
    store.writer.commit()
    assert registry_login(store.writer, "default", "r1") == RegistryAuth("my-username", PASSWORD)
    store.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert PASSWORD.encode() not in kept
    assert b"my-username" not in kept


@pytest.mark.parametrize("field", ["name", "username"])
async def test_a_password_in_a_wrong_field_is_not_repeated_either(api: Managed, field: str) -> None:
    for wrong, message in (({"password": PASSWORD}, "an object"), ([PASSWORD], "a list")):
        answer = await api.http.post(AUTHS, json=REQUEST | {field: wrong})
        assert answer.json()["error"] == f"{field}: Input should be a valid string; got {message}"
        assert PASSWORD not in (await api.http.get("/audit")).text
