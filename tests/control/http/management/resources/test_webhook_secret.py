"""The secret of webhooks over HTTP: who may see and rotate it, and what the audit log tells."""

from __future__ import annotations

import pytest

from stoker.client import ApiError
from stoker.control import store
from tests.control.http.management.managed import Managed
from tests.control.http.management.test_client import client

PATH = "/webhooksecret"


async def secrets(api: Managed) -> tuple[str, ...]:
    return await api.world.commits.read(store.webhook_secrets)


async def test_it_is_shown_rotated_and_the_old_one_dropped(api: Managed) -> None:
    async with client(api) as stoker:
        manage = stoker.manage.webhook_secret
        first = (await manage.show())["secret"]
        assert await secrets(api) == (first,)
        with pytest.raises(ApiError, match="one secret only"):
            await manage.drop_old()
        second = (await manage.rotate())["secret"]
        assert await secrets(api) == (second, first), "deliveries are signed with both"
        assert (await manage.show())["secret"] == second
        with pytest.raises(ApiError, match="two secrets already"):
            await manage.rotate()
        assert await manage.drop_old() is None
        assert await secrets(api) == (second,)


@pytest.mark.parametrize("access", [{"scope": "read"}, {"scope": "restricted", "management": "write"}])
async def test_only_a_key_of_scope_all_gets_it(api: Managed, access: dict[str, str]) -> None:
    made = await api.made("/keys", access=access)
    by = {"Authorization": made["key"]}
    for method, path in (("GET", PATH), ("POST", PATH + "/rotate"), ("POST", PATH + "/drop-old")):
        answer = await api.http.request(method, path, headers=by)
        assert answer.status_code == 401
        assert "whsec_" not in answer.text
    assert await secrets(api) == ()


async def test_looking_at_it_is_in_the_audit_log(api: Managed) -> None:
    shown = (await api.http.get(PATH)).json()["secret"]
    made = await api.made("/keys", access={"scope": "read"})
    await api.http.get(PATH, headers={"Authorization": made["key"]})
    refused, _, told = (await api.http.get("/audit")).json()
    assert (told["method"], told["path"], told["status"]) == ("GET", "/v1/webhooksecret", 200)
    assert (refused["key"], refused["path"], refused["status"]) == (made["id"], "/v1/webhooksecret", 401)
    assert shown not in str((refused, told))
