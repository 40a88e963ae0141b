"""The page's sign-in at an identity provider on loopback, beside a real control that takes its tokens."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from stoker.cli.control.oidc import sign_in
from stoker.control.config.sections import Config, OidcSection
from stoker.control.http.server.server import serve_http
from stoker.page.access import identity_provider
from stoker.page.access.connections import ENDED_S, Connections
from stoker.page.access.guard import COOKIE, Guard, token_of
from stoker.page.access.identity_provider import FRESH_S, IdentityProvider
from stoker.page.access.oidc_code_flow import BEGUN_S, Client, ProviderFailed
from stoker.page.access.sessions import SESSION_S, Sessions
from stoker.page.access.signing_in import BEGUN_COOKIE, SigningIn
from stoker.page.access.token_renewal import BEFORE_S, Renewals
from tests.control.auth.issuer import Issuer, issuing
from tests.control.http.management.managed import managed
from tests.kept_port import kept_port

RIGHTS: Any = {"ops": "all", "guests": "read"}
AT = "http://127.0.0.1:8080"


@dataclass
class Door:
    """A page's access alone, without its views, and browsers in front of it."""

    issuer: Issuer
    sessions: Sessions
    connections: Connections
    renewals: Renewals
    app: Guard
    clock: list[float]
    browsers: list[httpx2.AsyncClient] = field(default_factory=list)

    def browser(self) -> httpx2.AsyncClient:
        made = httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url=AT)
        self.browsers.append(made)
        return made

    async def sent(self, browser: httpx2.AsyncClient) -> str:
        """Where the provider sends a browser that has begun."""
        begun = await browser.get("/sign-in/provider")
        assert begun.status_code == 303, begun.text
        async with httpx2.AsyncClient(trust_env=False) as elsewhere:
            answer = await elsewhere.get(begun.headers["location"])
        return str(answer.headers["location"])

    async def signs_in(self, browser: httpx2.AsyncClient) -> httpx2.Response:
        return await browser.get(await self.sent(browser))


@pytest.fixture
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    secret: str | None = getattr(request, "param", None)
    clock = [time.time()]
    with issuing() as issuer:
        issuer.secret = secret
        async with managed() as api, await serve_http(api.app, "127.0.0.1", 0, grace_s=0) as control:
            section = OidcSection(issuer=issuer.url, audience=["stoker", "page"], rights=RIGHTS)
            api.plane.callers.sign_in = sign_in(Config(oidc=section))
            at = IdentityProvider(Client(issuer.url, "page", secret), lambda: clock[0])
            sessions, connections, app = Sessions(), Connections(control.url), FastAPI()

            @app.get("/")
            async def show(request: Request) -> Response:
                key = sessions.key_of(token_of(request.headers), clock[0])
                assert key is not None
                return JSONResponse(await connections.of(key).client.manage.whoami())

            def signed_in(token: str) -> bool:
                return sessions.key_of(token, clock[0]) is not None

            renewals = Renewals(at, sessions, connections, lambda: clock[0])
            SigningIn(sessions, connections, at, renewals, secure=False, clock=lambda: clock[0]).add_to(app)
            guard = Guard(app, signed_in, frozenset())
            made = Door(issuer, sessions, connections, renewals, guard, clock)
            try:
                yield made
            finally:
                for browser in made.browsers:
                    await browser.aclose()
                await connections.close()
                await at.close()


@pytest.mark.parametrize("door", [None, "s3cret+/%: ="], indirect=True)
async def test_somebody_signs_in_and_has_the_rights_of_their_groups(door: Door) -> None:
    browser = door.browser()
    form = (await browser.get("/sign-in")).text
    assert 'href="/sign-in/provider"' in form
    assert door.issuer.url.removeprefix("http://") in form
    answer = await door.signs_in(browser)
    assert (answer.status_code, answer.headers["location"]) == (303, "/"), answer.text
    own = (await browser.get("/")).json()
    assert own == {"id": "oidc:ada", "access": {"scope": "all"}}
    assert [*browser.cookies] == [COOKIE], "the other one has done its work"


async def test_the_browser_gets_neither_the_token_nor_the_verifier(door: Door) -> None:
    browser = door.browser()
    begun = await browser.get("/sign-in/provider")
    kept = browser.cookies[BEGUN_COOKIE]
    assert kept not in begun.headers["location"]
    attributes = begun.headers["set-cookie"]
    assert all(one in attributes for one in ("HttpOnly", "SameSite=lax", "Path=/sign-in", "Max-Age=600"))
    answer = await door.signs_in(browser)
    session = answer.headers.get_list("set-cookie")[0]
    assert session.startswith(f"{COOKIE}=")
    assert all(one in session for one in ("HttpOnly", "SameSite=lax", "Path=/"))
    assert "eyJ" not in f"{answer.headers} {answer.text}"


async def test_a_session_ends_with_its_token_and_its_connection_with_it(door: Door) -> None:
    door.issuer.claims = {"exp": int(door.clock[0]) + 200}
    browser = door.browser()
    answer = await door.signs_in(browser)
    assert "Max-Age=200" in answer.headers["set-cookie"] or "Max-Age=199" in answer.headers["set-cookie"]
    door.clock[0] += 201
    assert (await browser.get("/")).headers["location"] == "/sign-in"
    door.clock[0] += ENDED_S
    assert len(door.connections._by_key) == 1
    door.issuer.claims = {"exp": int(door.clock[0] + 2 * SESSION_S)}
    longest = await door.signs_in(browser)
    assert f"Max-Age={int(SESSION_S)}" in longest.headers["set-cookie"], "no longer than with a key"
    assert len(door.connections._by_key) == 1, "the new one"


async def test_a_session_is_renewed_before_its_token_ends(door: Door) -> None:
    """As often as it takes, with the connection that its open pages have; 12 hours long at most."""
    door.issuer.refreshes = True
    began = door.clock[0]
    door.issuer.claims = {"exp": int(began) + 300}
    browser = door.browser()
    answer = await door.signs_in(browser)
    assert f"Max-Age={int(SESSION_S)}" in answer.headers["set-cookie"], "it may go on as long"
    key = door.sessions.key_of(browser.cookies[COOKIE], began)
    assert key is not None
    connection, first = door.connections.of(key), door.connections.of(key).client
    await door.renewals.look()
    assert connection.client is first, "not before it is due"
    for minutes in range(5, 25, 5):
        door.clock[0] = began + 60.0 * minutes - BEFORE_S
        door.issuer.claims = {"exp": int(began) + 60 * minutes + 300}
        await door.renewals.look()
    assert connection.client is first, "what it follows goes on"
    assert (await browser.get("/")).json()["id"] == "oidc:ada"
    assert door.connections.of(key) is connection
    door.issuer.claims = {"exp": int(began + 2 * SESSION_S)}
    door.clock[0] = began + 1500 - BEFORE_S
    await door.renewals.look()
    door.clock[0] = began + SESSION_S - 1
    assert (await browser.get("/")).status_code == 200
    door.clock[0] += 2
    assert (await browser.get("/")).headers["location"] == "/sign-in"


@pytest.mark.parametrize(
    ("claims", "why"),
    [({"sub": "eve"}, "it is of 'eve', and not of 'ada'"), ({"aud": "other"}, "and not for page")],
)
async def test_a_token_of_somebody_else_renews_nothing(
    door: Door, claims: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    door.issuer.refreshes, door.issuer.claims = True, {"exp": int(door.clock[0]) + 300}
    browser = door.browser()
    await door.signs_in(browser)
    door.clock[0] += 300 - BEFORE_S
    door.issuer.claims = {"exp": int(door.clock[0]) + 300, **claims}
    for _ in range(2):
        await door.renewals.look()
    assert [why in message for message in caplog.messages] == [True], "once"
    door.clock[0] += BEFORE_S + 1
    assert (await browser.get("/")).headers["location"] == "/sign-in"


async def test_a_provider_that_is_down_is_asked_again_until_the_token_ends(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    door.issuer.refreshes, door.issuer.claims = True, {"exp": int(door.clock[0]) + 300}
    browser = door.browser()
    await door.signs_in(browser)
    door.clock[0] += 300 - BEFORE_S
    door.issuer.down = True
    await door.renewals.look()
    assert "is not renewed yet: " in caplog.text
    door.issuer.down = False
    door.issuer.claims = {"exp": int(door.clock[0]) + 300}
    await door.renewals.look()
    door.clock[0] += BEFORE_S + 1
    assert (await browser.get("/")).status_code == 200


async def test_a_fault_in_one_renewal_ends_no_other(
    door: Door, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.issuer.refreshes, door.issuer.claims = True, {"exp": int(door.clock[0]) + 300}
    browsers = door.browser(), door.browser()
    for browser in browsers:
        await door.signs_in(browser)
    renew, faults = door.connections.renew, [RuntimeError("a fault")]

    def faulty(key: str, token: str, until: float) -> None:
        if faults:
            raise faults.pop()
        renew(key, token, until)

    monkeypatch.setattr(door.connections, "renew", faulty)
    door.clock[0] += 300 - BEFORE_S
    door.issuer.claims = {"exp": int(door.clock[0]) + 300}
    await door.renewals.look()
    [logged] = caplog.records
    assert logged.exc_info is not None
    assert (logged.levelname, str(logged.exc_info[1])) == ("ERROR", "a fault")
    door.clock[0] += BEFORE_S + 1
    assert sorted([(await browser.get("/")).status_code for browser in browsers]) == [200, 303]


async def test_who_has_signed_out_is_not_renewed(door: Door) -> None:
    door.issuer.refreshes = True
    browser = door.browser()
    await door.signs_in(browser)
    await browser.post("/sign-out")
    await door.renewals.look()
    assert door.renewals._kept == {}


async def test_signing_out_ends_the_session(door: Door) -> None:
    browser = door.browser()
    await door.signs_in(browser)
    token = browser.cookies[COOKIE]
    await browser.post("/sign-out")
    assert door.sessions.key_of(token, door.clock[0]) is None
    assert (await browser.get("/")).headers["location"] == "/sign-in"


async def test_who_is_sent_to_the_answer_of_another_is_not_signed_in_as_them(door: Door) -> None:
    """Somebody sends a victim the address to which the provider sent them."""
    rogue, victim = door.browser(), door.browser()
    sent = await door.sent(rogue)
    refused = await victim.get(sent)
    assert (refused.status_code, "not begun in this browser" in refused.text) == (403, True)
    await victim.get("/sign-in/provider")
    refused = await victim.get(sent)
    assert (refused.status_code, "another state" in refused.text) == (403, True)
    assert COOKIE not in victim.cookies
    assert (await rogue.get(sent)).status_code == 303
    again = await rogue.get(sent)
    assert (again.status_code, "was over before" in again.text) == (403, True), "once"


async def test_who_takes_too_long_begins_again(door: Door) -> None:
    browser = door.browser()
    sent = await door.sent(browser)
    door.clock[0] += BEGUN_S
    assert (await browser.get(sent)).status_code == 403


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "another"}, "it has another nonce"),
        ({"nonce": None}, "it has another nonce"),
        ({"aud": "stoker"}, "it is for &#x27;stoker&#x27;, and not for page"),
        ({"iss": "https://another.example"}, "it is of"),
        ({"exp": int(time.time()) - 3600}, "it has expired"),
        ({"groups": ["others"]}, "Control refused the token of .*: oidc:ada may do nothing here"),
        ({"sub": ""}, "Control refused the token of .*: .* its subject"),
        ({"iat": int(time.time()) + 36_000}, "Control refused the token of .*: .* is not valid yet"),
    ],
)
async def test_a_token_that_is_no_good_signs_nobody_in(door: Door, claims: dict[str, Any], why: str) -> None:
    door.issuer.claims = claims
    browser = door.browser()
    refused = await door.signs_in(browser)
    assert refused.status_code == 403
    assert re.search(why, refused.text), refused.text
    assert 'role="alert"' in refused.text
    assert COOKIE not in browser.cookies
    assert door.connections._by_key == {}


async def test_control_verifies_the_signature(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page does not: the provider gives the token to it alone, and control is asked at once."""
    real = door.issuer.token
    monkeypatch.setattr(door.issuer, "token", lambda **claims: real(**claims)[:-8] + "AAAAAAAA")
    browser = door.browser()
    refused = await door.signs_in(browser)
    assert (refused.status_code, "Signature verification failed" in refused.text) == (403, True)
    assert COOKIE not in browser.cookies


@pytest.mark.parametrize("door", ["s3cret"], indirect=True)
async def test_a_wrong_secret_and_a_used_code_are_told(door: Door) -> None:
    door.issuer.secret = "another"
    refused = await door.signs_in(door.browser())
    assert (refused.status_code, "invalid_client" in refused.text) == (403, True)
    browser = door.browser()
    sent = await door.sent(browser)
    door.issuer._codes.clear()
    refused = await browser.get(sent)
    assert "invalid_grant: this code is not for you" in refused.text


async def test_what_the_provider_says_is_text(door: Door) -> None:
    browser = door.browser()
    await browser.get("/sign-in/provider")
    state = httpx2.QueryParams((await door.sent(browser)).partition("?")[2])["state"]
    answer = await browser.get(
        "/sign-in/back", params={"state": state, "error": "x", "error_description": "<script>1</script>"}
    )
    assert (answer.status_code, "refuses this sign-in: x: &lt;script&gt;" in answer.text) == (403, True)


async def test_a_provider_that_is_down_is_a_sentence_and_keys_work_on(door: Door) -> None:
    door.issuer.down = True
    browser = door.browser()
    for _ in range(2):
        answer = await browser.get("/sign-in/provider")
        assert (answer.status_code, "answers 503" in answer.text) == (502, True)
    door.issuer.down = False
    sent = await door.sent(browser)
    door.issuer.down = True
    answer = await browser.get(sent)
    assert (answer.status_code, "/token answers 503" in answer.text) == (502, True)
    answer = await browser.post("/sign-in", data={"key": "sk_000000000000_" + 48 * "0"})
    assert "Control refused this key" in answer.text


async def test_a_provider_that_cannot_be_reached_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, and silent."""
    monkeypatch.setattr(identity_provider, "WITHIN_S", 0.05)
    with kept_port() as held:
        at = f"http://127.0.0.1:{held.getsockname()[1]}"
        page = IdentityProvider(Client(at, "page"), time.time)
        for why in ("cannot be reached: ", "did not answer within 0.05 s"):
            with pytest.raises(ProviderFailed, match=f"^{at}{identity_provider.WELL_KNOWN} {why}"):
                await page.addresses()
            held.listen()
        await page.close()


async def test_an_answer_without_an_end_is_refused(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_provider, "ANSWER_BYTES", 100)
    answer = await door.browser().get("/sign-in/provider")
    assert (answer.status_code, "answers with more than 100 bytes" in answer.text) == (502, True)


async def test_the_providers_document_is_read_once_an_hour(door: Door) -> None:
    for _ in range(3):
        await door.browser().get("/sign-in/provider")
    assert door.issuer.asked == ["/.well-known/openid-configuration"]
    door.clock[0] += FRESH_S
    await door.browser().get("/sign-in/provider")
    assert len(door.issuer.asked) == 2


async def test_a_page_without_a_provider_has_no_such_paths() -> None:
    app = FastAPI()
    SigningIn(Sessions(), Connections("http://127.0.0.1:1"), secure=False).add_to(app)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=AT) as browser:
        assert "provider" not in (await browser.get("/sign-in")).text.partition("<main>")[2]
        assert (await browser.get("/sign-in/provider")).status_code == 404
        assert (await browser.get("/sign-in/back")).status_code == 404
