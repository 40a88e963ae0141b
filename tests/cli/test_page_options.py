"""The options of `stoker page` that make it a client of an identity provider."""

from __future__ import annotations

import pytest

from stoker.cli.errors import CliError
from stoker.cli.page import client_of

ISSUER = "https://login.example.com"


def test_a_page_is_a_client_of_the_provider_that_its_options_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOKER_OIDC_CLIENT_SECRET", raising=False)
    assert client_of(None, None, "openid") is None
    made = client_of(ISSUER, "page", "openid groups")
    assert made is not None
    assert (made.issuer, made.id, made.secret, made.scope) == (ISSUER, "page", None, "openid groups")
    monkeypatch.setenv("STOKER_OIDC_CLIENT_SECRET", "s3cret")
    made = client_of(ISSUER, "page", "openid")
    assert made is not None
    assert made.secret == "s3cret"


@pytest.mark.parametrize(
    ("issuer", "client_id", "scope", "why"),
    [
        (ISSUER, None, "openid", "belong together"),
        (None, "page", "openid", "belong together"),
        ("http://login.example.com", "page", "openid", "must be an https URL"),
        ("login.example.com", "page", "openid", "must be an https URL"),
        (ISSUER, "page", "groups", "must have openid"),
    ],
)
def test_options_that_would_not_work_are_refused(
    issuer: str | None, client_id: str | None, scope: str, why: str
) -> None:
    with pytest.raises(CliError, match=why):
        client_of(issuer, client_id, scope)
