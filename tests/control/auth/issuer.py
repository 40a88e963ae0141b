"""An issuer of OpenID Connect on loopback: discovery, keys that are rotated, and tokens that it signs."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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

    def document(self, path: str) -> dict[str, Any] | None:
        self.asked.append(path)
        if self.down:
            return None
        if path == "/.well-known/openid-configuration":
            keys = self.jwks_uri or f"{self.url}/keys"
            return {"issuer": self.calls_itself or self.url, "jwks_uri": keys}
        return {"keys": [*self.more, *(public_jwk(name, key) for name, key in self.keys.items())]}

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
            found = issuer.document(self.path)
            body = json.dumps(found).encode()
            self.send_response(503 if found is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    with served(server):
        yield issuer
