"""An issuer of OpenID Connect on loopback: discovery, keys that are rotated, and tokens that it signs; and
the sign-in by code, of somebody who is signed in there already."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.servers.loopback_server import served

RSA = rsa.generate_private_key(65537, 2048)


class Issuer:
    """`asked` has the paths that were requested. While it is `down`, every answer is a 503."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.down = False
        self.calls_itself: str | None = None
        self.jwks_uri: str | None = None
        self.keys: dict[str, Any] = {"k1": RSA}
        self.more: list[dict[str, Any]] = []
        self.secret: str | None = None
        """The secret of its clients, which are public ones without."""
        self.by_header = True
        self.claims: dict[str, Any] = {}
        """The claims of the next tokens for codes, where they are not as they should be."""
        self.refreshes = False
        """Whether it gives refresh tokens, each of which is good once."""
        self.renewed = 0
        """How often it gave a token for one of them."""
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, dict[str, str]] = {}

    def document(self, path: str) -> dict[str, Any] | None:
        self.asked.append(path)
        if self.down:
            return None
        if path == "/.well-known/openid-configuration":
            return {
                "issuer": self.calls_itself or self.url,
                "jwks_uri": self.jwks_uri or f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "token_endpoint_auth_methods_supported": [
                    "client_secret_basic" if self.by_header else "client_secret_post"
                ],
            }
        return {"keys": [*self.more, *(public_jwk(name, key) for name, key in self.keys.items())]}

    def back(self, query: dict[str, str]) -> str:
        """Where a browser is sent that came with this query: back, with a code."""
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        assert "openid" in query["scope"].split()
        code = f"code-{len(self._codes) + 1}"
        self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchanged(self, form: dict[str, str], header: str | None) -> tuple[int, dict[str, Any]]:
        """The answer to a code or a refresh token: once, to the client that it was for."""
        by_refresh = form["grant_type"] == "refresh_token"
        asked = self._refreshed(form) if by_refresh else self._asked(form)
        if asked is None:
            return 400, {"error": "invalid_grant", "error_description": "this code is not for you"}
        pair = ":".join(quote_plus(one) for one in (asked["client_id"], self.secret or ""))
        basic = base64.b64encode(pair.encode()).decode()
        expected = (f"Basic {basic}", None) if self.by_header else (None, self.secret)
        if self.secret is not None and (header, form.get("client_secret")) != expected:
            return 401, {"error": "invalid_client"}
        nonce = None if by_refresh else asked["nonce"]
        claims = {"aud": asked["client_id"], "nonce": nonce, **self.claims}
        found = {"access_token": "opaque", "token_type": "Bearer", "id_token": self.token(**claims)}
        if self.refreshes:
            found["refresh_token"] = f"refresh-{secrets.token_hex(8)}"
            self._refresh[found["refresh_token"]] = asked
        return 200, found

    def _asked(self, form: dict[str, str]) -> dict[str, str] | None:
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
        if (
            asked is None
            or asked["code_challenge"] != challenge.decode().rstrip("=")
            or any(form[name] != asked[name] for name in ("redirect_uri", "client_id"))
        ):
            return None
        return asked

    def _refreshed(self, form: dict[str, str]) -> dict[str, str] | None:
        asked = self._refresh.pop(form["refresh_token"], None)
        self.renewed += asked is not None
        return asked if asked is not None and asked["client_id"] == form["client_id"] else None

    def token(self, kid: str = "k1", algorithm: str = "RS256", key: Any = None, **claims: Any) -> str:
        """A good token, but for what is given; a claim that is None is left out."""
        now = int(time.time())
        good = {
            "iss": self.url,
            "aud": "stoker",
            "sub": "ada",
            "iat": now,
            "exp": now + 300,
            "groups": ["ops"],
        }
        given = {name: value for name, value in {**good, **claims}.items() if value is not None}
        signing = self.keys.get(kid, RSA) if key is None else key
        return jwt.encode(given, signing, algorithm, headers={"kid": kid})


def public_jwk(name: str, key: Any) -> dict[str, Any]:
    algorithm = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}


@contextlib.contextmanager
def issuing() -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == "/authorize":
                self.send_response(303)
                self.send_header("Location", issuer.back(dict(parse_qsl(query))))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            found = issuer.document(self.path)
            self._answer(503 if found is None else 200, found)

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self._answer(
                *((503, None) if issuer.down else issuer.exchanged(form, self.headers["Authorization"]))
            )

        def _answer(self, status: int, found: dict[str, Any] | None) -> None:
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    with served(server):
        yield issuer
