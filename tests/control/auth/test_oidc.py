"""Tokens of an issuer on loopback, over real HTTP: what is accepted, and every way in which one is not."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from stoker.cli.control.oidc import sign_in
from stoker.control.auth.identities import FRESH_S, STALE_S, TRY_EVERY_S
from stoker.control.auth.oidc import SignIn, keys_in
from stoker.control.config.sections import Config, OidcSection
from stoker.control.errors import Forbidden, Unauthorized, Unavailable
from stoker.control.rules.access import Access
from tests.control.auth.issuer import RSA, Issuer, issuing

RIGHTS: Any = {"ops": "all", "devs": "write", "guests": "read"}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


@dataclass
class Bench:
    issuer: Issuer
    sign_in: SignIn
    later: float = 0.0

    async def subject(self, token: str) -> str:
        caller, _ = await self.sign_in.find(token)
        return caller.key


@pytest.fixture
def bench(issuer: Issuer) -> Bench:
    made = sign_in(Config(oidc=OidcSection(issuer=issuer.url, audience="stoker", rights=RIGHTS)))
    assert made is not None
    bench = Bench(issuer, made)
    made._clock = lambda: time.time() + bench.later
    return bench


async def test_a_token_names_its_caller_and_what_its_groups_may(bench: Bench) -> None:
    caller, expires_at = await bench.sign_in.find(bench.issuer.token(sub="ada"))
    assert (caller.account, caller.key, caller.access) == ("default", "oidc:ada", Access("all"))
    assert 290 < expires_at - time.time() < 340
    reader, _ = await bench.sign_in.find(bench.issuer.token(groups=["guests", "others"]))
    assert reader.access == Access("read")
    assert bench.issuer.asked == ["/.well-known/openid-configuration", "/keys"], "once for all of them"


async def test_tokens_may_be_for_one_of_several_audiences(issuer: Issuer) -> None:
    section = OidcSection(issuer=issuer.url, audience=["stoker", "page"], rights=RIGHTS)
    made = sign_in(Config(oidc=section))
    assert made is not None
    for audience in ("stoker", "page", ["other", "page"]):
        assert (await made.find(issuer.token(aud=audience)))[0].key == "oidc:ada"
    with pytest.raises(Unauthorized, match=r"[Aa]udience"):
        await made.find(issuer.token(aud="other"))


async def test_who_is_in_no_group_that_has_a_right_is_told_so(bench: Bench) -> None:
    for groups in (["others"], [], None):
        with pytest.raises(
            Forbidden, match=r"oidc:ada may do nothing here: none of the groups .* devs, guests, ops"
        ):
            await bench.sign_in.find(bench.issuer.token(groups=groups))


PAST, FUTURE = int(time.time()) - 3600, int(time.time()) + 36_000


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "another"}, "[Aa]udience"),
        ({"aud": None}, '"aud"'),
        ({"iss": "https://other.example"}, "[Ii]ssuer"),
        ({"iss": None}, '"iss"'),
        ({"exp": PAST}, "it has expired: sign in again"),
        ({"exp": None}, '"exp"'),
        ({"nbf": FUTURE}, "it is not valid yet: compare the clocks"),
        ({"iat": FUTURE}, "it is not valid yet: compare the clocks"),
        ({"iat": None}, '"iat"'),
        ({"sub": None}, '"sub"'),
        ({"sub": ""}, "its subject is not a text"),
        ({"sub": "a\x00b"}, "its subject is not a text"),
        ({"sub": "a" * 256}, "its subject is not a text"),
    ],
)
async def test_a_token_with_a_wrong_claim_is_refused_with_the_reason(
    bench: Bench, claims: dict[str, Any], why: str
) -> None:
    with pytest.raises(Unauthorized, match=f"this token of {bench.issuer.url} is refused: .*{why}"):
        await bench.sign_in.find(bench.issuer.token(**claims))


async def test_clocks_may_differ_by_half_a_minute(bench: Bench) -> None:
    now = int(time.time())
    assert await bench.subject(bench.issuer.token(exp=now - 10)) == "oidc:ada"
    assert await bench.subject(bench.issuer.token(nbf=now + 10, iat=now + 10)) == "oidc:ada"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed_with(algorithm: str, token: str, secret: bytes) -> str:
    """The same claims by hand, since the library makes no such token; without a secret, no signature."""
    head = encoded(json.dumps({"alg": algorithm, "typ": "JWT", "kid": "k1"}).encode())
    said = f"{head}.{token.split('.')[1]}"
    return f"{said}.{encoded(hmac.digest(secret, said.encode(), 'sha256')) if secret else ''}"


async def test_no_token_chooses_how_it_is_verified(bench: Bench) -> None:
    """Neither without a signature, nor with a secret that everybody has: the issuer's public key."""
    good = bench.issuer.token()
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    strangers = rsa.generate_private_key(65537, 2048)
    embedded = jwt.encode(
        jwt.decode(good, options={"verify_signature": False}),
        strangers,
        "RS256",
        headers={
            "kid": "k1",
            "jwk": {"kty": "RSA"},
            "jku": "https://rogue.example/keys",
            "x5u": "https://rogue",
        },
    )
    for rogue in (
        signed_with("none", good, b""),
        signed_with("HS256", good, public),
        bench.issuer.token(key=strangers),
        embedded,
        good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB"),
    ):
        with pytest.raises(Unauthorized, match="is refused"):
            await bench.sign_in.find(rogue)
    assert set(bench.issuer.asked) == {"/.well-known/openid-configuration", "/keys"}


async def test_a_key_verifies_its_own_algorithm_only(bench: Bench) -> None:
    bench.issuer.keys["e1"] = ec.generate_private_key(ec.SECP256R1())
    assert await bench.subject(bench.issuer.token("e1", "ES256")) == "oidc:ada"
    with pytest.raises(Unauthorized, match="is refused"):
        await bench.sign_in.find(bench.issuer.token("e1", "RS256", key=RSA))


@pytest.mark.parametrize("token", ["eyJ.a.b", "eyJhbGciOiJSUzI1NiJ9.e30.AAAA"])
async def test_what_is_no_token_is_refused_and_asks_nobody(bench: Bench, token: str) -> None:
    with pytest.raises(Unauthorized, match=r"its head cannot be read|does not name its key"):
        await bench.sign_in.find(token)
    assert bench.issuer.asked == []


async def test_a_rotated_key_is_fetched_when_it_is_first_seen(bench: Bench) -> None:
    old = bench.issuer.token()
    assert await bench.subject(old) == "oidc:ada"
    bench.issuer.keys = {"k2": rsa.generate_private_key(65537, 2048)}
    with pytest.raises(Unauthorized, match="its key 'k2' is not one of the issuer's"):
        await bench.sign_in.find(bench.issuer.token("k2"))
    assert len(bench.issuer.asked) == 2, "just fetched: strangers may make up any number of keys"
    bench.later = TRY_EVERY_S
    assert await bench.subject(bench.issuer.token("k2")) == "oidc:ada"
    with pytest.raises(Unauthorized, match="its key 'k1' is not one of the issuer's"):
        await bench.sign_in.find(old)


async def test_an_issuer_that_is_down_is_done_without_for_a_day(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    far = int(time.time() + 2 * STALE_S)
    token = bench.issuer.token(exp=far)
    bench.issuer.down = True
    with pytest.raises(Unavailable, match="cannot be had: try later, or use an API key"):
        await bench.sign_in.find(token)
    assert "cannot be fetched" in caplog.text
    bench.issuer.down = False
    bench.later = TRY_EVERY_S
    assert await bench.subject(token) == "oidc:ada"
    bench.issuer.down = True
    bench.later += FRESH_S
    assert await bench.subject(token) == "oidc:ada", "with the keys of before"
    bench.later += STALE_S
    with pytest.raises(Unavailable):
        await bench.sign_in.find(token)


async def test_another_issuer_behind_the_address_is_not_believed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.issuer.calls_itself = "https://other.example"
    with pytest.raises(Unavailable):
        await bench.sign_in.find(bench.issuer.token())
    assert "calls itself 'https://other.example'" in caplog.text
    bench.issuer.calls_itself, bench.issuer.jwks_uri = None, "http://192.0.2.1/keys"
    bench.later = TRY_EVERY_S
    with pytest.raises(Unavailable):
        await bench.sign_in.find(bench.issuer.token())
    assert "its jwks_uri must be an https URL; got 'http://192.0.2.1/keys'" in caplog.text


async def test_keys_of_other_kinds_are_left_out(bench: Bench) -> None:
    secret = {"kty": "oct", "kid": "k1", "k": "c2VjcmV0"}
    bench.issuer.more = [secret, {"kty": "RSA", "kid": "x"}, {"kty": "new"}]  # as if others came first
    assert await bench.subject(bench.issuer.token()) == "oidc:ada"
    private = {"kty": "OKP", "crv": "Ed25519", "kid": "p", "x": "", "d": ""}
    with pytest.raises(Exception, match="no key that verifies signatures"):
        keys_in({"keys": [secret, private, 7]})
