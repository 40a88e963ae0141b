"""Management with a token of an issuer in place of a key: rights, refusals, and the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stoker.cli.control.oidc import sign_in
from stoker.control.config.sections import Config, OidcSection
from tests.control.auth.issuer import Issuer, issuing
from tests.control.http.management.managed import V2, Managed

TEMPLATE = {"name": "t", "imageName": "ghcr.io/example/worker:1"}
RIGHTS: Any = {"ops": "all", "devs": "write", "guests": "read"}


@pytest.fixture
def issuer(api: Managed) -> Iterator[Issuer]:
    with issuing() as made:
        section = OidcSection(issuer=made.url, audience="stoker", rights=RIGHTS)
        api.plane.callers.sign_in = sign_in(Config(oidc=section))
        yield made


def by(issuer: Issuer, *groups: str, **claims: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {issuer.token(groups=list(groups), **claims)}"}


async def test_a_token_does_what_its_groups_may_and_the_audit_log_names_its_subject(
    api: Managed, issuer: Issuer
) -> None:
    assert (await api.http.get("/nodes", headers=by(issuer, "guests"))).status_code == 200
    refused = await api.http.post("/templates", json=TEMPLATE, headers=by(issuer, "guests", sub="bob"))
    assert (refused.status_code, "may not change anything here" in refused.json()["message"]) == (401, True)
    made = await api.http.post("/templates", json=TEMPLATE, headers=by(issuer, "devs", sub="ada"))
    assert made.status_code in (200, 201)
    keys = await api.http.post("/keys", json={"name": "k"}, headers=by(issuer, "devs", sub="ada"))
    assert keys.status_code == 401, "no right but `all` makes keys"
    assert (await api.http.post("/keys", json={"name": "k"}, headers=by(issuer, "ops"))).status_code == 200
    lines = (await api.http.get("/audit")).json()
    assert [(line["key"], line["path"], line["status"]) for line in reversed(lines)][:3] == [
        ("oidc:bob", "/v1/templates", 401),
        ("oidc:ada", "/v1/templates", made.status_code),
        ("oidc:ada", "/v1/keys", 401),
    ]


async def test_a_token_that_is_no_good_is_a_401_with_the_reason(api: Managed, issuer: Issuer) -> None:
    answer = await api.http.get("/nodes", headers=by(issuer, "ops", aud="another"))
    assert answer.status_code == 401
    assert "is refused: Audience" in answer.json()["message"]
    second = await api.http.get(V2 + "/pods", headers=by(issuer, "nobody"))
    assert second.status_code == 403, "a good token without a right, in the second shape"
    own = (await api.http.get("/self", headers=by(issuer, "guests"))).json()
    assert own == {"id": "oidc:ada", "access": {"scope": "read"}}


async def test_keys_work_beside_it_and_without_it_a_token_is_a_wrong_key(
    api: Managed, issuer: Issuer
) -> None:
    assert (await api.http.get("/nodes")).status_code == 200
    api.plane.callers.sign_in = None
    answer = await api.http.get("/nodes", headers=by(issuer, "ops"))
    assert (answer.status_code, answer.json()["message"]) == (401, "invalid api key")
