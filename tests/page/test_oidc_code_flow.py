"""The requests of a sign-in at a provider, and what of its answers is refused."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.page.access import oidc_code_flow
from stoker.page.access.oidc_code_flow import (
    BEGUN_S,
    Begun,
    BegunSignIns,
    Client,
    Provider,
    ProviderFailed,
    SignInRefused,
    code_of,
    end_of,
    end_of_next,
    exchange_form,
    is_secured,
    next_form,
    provider_of,
    sign_in_url,
)

ISSUER = "https://login.example.com"
CLIENT = Client(ISSUER, "page", "s3cret", "openid groups")
PROVIDER = Provider(f"{ISSUER}/authorize?tenant=1", f"{ISSUER}/token")
BEGUN = Begun("state", "nonce", "verifier", "https://page.example.com/sign-in/back", 600.0)
CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": "page", "exp": 1000, "nonce": "nonce"}
DOCUMENT = {"issuer": ISSUER, "authorization_endpoint": f"{ISSUER}/a", "token_endpoint": f"{ISSUER}/t"}


def test_the_browser_is_sent_with_all_that_the_answer_is_compared_with_but_the_verifier() -> None:
    url = urlsplit(sign_in_url(PROVIDER, CLIENT, BEGUN))
    query = dict(parse_qsl(url.query))
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"verifier").digest()).decode().rstrip("=")
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"{ISSUER}/authorize"
    assert query == {
        "tenant": "1",
        "response_type": "code",
        "client_id": "page",
        "redirect_uri": BEGUN.back,
        "scope": "openid groups",
        "state": "state",
        "nonce": "nonce",
        "code_challenge": digest,
        "code_challenge_method": "S256",
    }


def test_a_secret_is_sent_as_the_provider_takes_it() -> None:
    form = exchange_form(CLIENT, PROVIDER, BEGUN, "c")
    assert (form["code"], form["code_verifier"], form["redirect_uri"]) == ("c", "verifier", BEGUN.back)
    assert "client_secret" not in form, "in the header"
    assert exchange_form(CLIENT, replace(PROVIDER, by_header=False), BEGUN, "c")["client_secret"] == "s3cret"
    again = next_form(CLIENT, replace(PROVIDER, by_header=False), "r")
    assert again == {
        "grant_type": "refresh_token",
        "refresh_token": "r",
        "client_id": "page",
        "client_secret": "s3cret",
    }
    public = replace(CLIENT, secret=None)
    assert "client_secret" not in exchange_form(public, replace(PROVIDER, by_header=False), BEGUN, "c")


@pytest.mark.parametrize(
    ("ways", "by_header"),
    [(None, True), (["client_secret_basic", "client_secret_post"], True), (["client_secret_post"], False)],
)
def test_a_provider_says_how_it_takes_secrets(ways: list[str] | None, by_header: bool) -> None:
    said = {} if ways is None else {"token_endpoint_auth_methods_supported": ways}
    assert provider_of(ISSUER, {**DOCUMENT, **said}).by_header is by_header


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"issuer": "https://another.example"}, "calls itself 'https://another.example'"),
        ({"issuer": None}, "calls itself"),
        ({"authorization_endpoint": "http://login.example.com/a"}, "authorization_endpoint .* https"),
        ({"token_endpoint": "http://login.example.com/t"}, "token_endpoint .* https"),
        ({"token_endpoint": None}, "token_endpoint"),
        ({"token_endpoint": "https://[x"}, "token_endpoint"),
    ],
)
def test_a_document_that_would_send_secrets_elsewhere_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ProviderFailed, match=why):
        provider_of(ISSUER, {**DOCUMENT, **wrong})


def test_http_is_for_this_host_alone() -> None:
    assert is_secured("http://127.0.0.1:1/x")
    assert not any(is_secured(url) for url in ("http://127.0.0.1.example.com", "ftp://h", "https://", "x"))


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"code": "c", "state": "another"}, "another state"),
        ({"code": "c"}, "another state"),
        ({"error": "access_denied"}, "another state"),
        ({"state": "state"}, "has no code"),
        (
            {"state": "state", "error": "access_denied", "error_description": "not you"},
            "access_denied: not you",
        ),
        ({"code": "c", "state": "state", "iss": "https://evil.example"}, "is of 'https://evil.example'"),
    ],
)
def test_an_answer_to_another_sign_in_is_refused(query: dict[str, str], why: str) -> None:
    with pytest.raises(SignInRefused, match=why):
        code_of(BEGUN, ISSUER, query)
    assert code_of(BEGUN, ISSUER, {"code": "c", "state": "state", "iss": ISSUER}) == (BEGUN, "c")
    with pytest.raises(SignInRefused, match="not begun in this browser"):
        code_of(None, ISSUER, {"code": "c", "state": "state"})


@given(st.text().filter(lambda text: text != "state"))
def test_no_other_state_is_this_one(state: str) -> None:
    with pytest.raises(SignInRefused):
        code_of(BEGUN, ISSUER, {"code": "c", "state": state})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"iss": "https://another.example"}, "it is of"),
        ({"aud": "another"}, "it is for 'another', and not for page"),
        ({"aud": ["another"]}, "and not for page"),
        ({"aud": None}, "and not for page"),
        ({"aud": ["page", "other"], "azp": "other"}, "and not for page"),
        ({"exp": 900}, "has expired: compare the clocks"),
        ({"exp": None}, "has expired"),
        ({"nonce": "another"}, "another nonce"),
        ({"nonce": None}, "another nonce"),
        ({"nonce": "\ud800"}, "another nonce"),
    ],
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(SignInRefused, match=why):
        end_of({**CLAIMS, **wrong}, BEGUN, CLIENT, 900.0)
    assert end_of({**CLAIMS, "aud": ["page", "other"], "azp": "page"}, BEGUN, CLIENT, 900.0) == 1000.0
    assert end_of({**CLAIMS, "exp": 901}, BEGUN, CLIENT, 900.0) == 901.0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"sub": "eve"}, "it is of 'eve', and not of 'ada'"),
        ({"sub": None}, "and not of 'ada'"),
        ({"iss": "https://another.example"}, "it is of"),
        ({"aud": "another"}, "and not for page"),
        ({"exp": 900}, "has expired: compare the clocks"),
    ],
)
def test_the_next_token_is_of_the_same_person(wrong: dict[str, Any], why: str) -> None:
    claims = {"iss": ISSUER, "aud": "page", "exp": 1000, "sub": "ada"}
    assert end_of_next(claims, "ada", CLIENT, 900.0) == 1000.0, "without a nonce"
    with pytest.raises(SignInRefused, match=why):
        end_of_next({**claims, **wrong}, "ada", CLIENT, 900.0)


def test_a_sign_in_comes_back_once_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc_code_flow, "BEGUN_MOST", 2)
    kept = BegunSignIns()
    for name in ("first", "second", "third"):
        kept.keep(name, BEGUN, 0.0)
    assert kept.take("first", 0.0) is None, "the oldest goes where there are too many"
    assert kept.take("second", BEGUN_S - 1) == BEGUN
    assert kept.take("second", BEGUN_S - 1) is None
    assert kept.take("third", BEGUN_S) is None
    assert kept.take("", 0.0) is None


def test_no_secret_is_shown() -> None:
    shown = f"{CLIENT!r} {BEGUN!r}"
    assert not any(f"'{secret}'" in shown for secret in ("s3cret", "state", "nonce", "verifier"))
