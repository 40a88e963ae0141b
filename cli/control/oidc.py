"""The sign-in at an issuer of OpenID Connect, as the configuration names it."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

from stoker.control.config.sections import Config
from stoker.outbound.guard import FetchLimits, Guard

if TYPE_CHECKING:
    from stoker.control.auth.oidc import SignIn

LIMITS = FetchLimits(size_bytes=1 << 20, timeout_s=10.0, redirects=0)


def sign_in(config: Config) -> SignIn | None:
    """Returns what finds callers by tokens of the issuer; None where the configuration names none. The
    operator chose the address, so that it may be private."""
    section = config.oidc
    if section is None:
        return None
    from stoker.control.auth.oidc import Issuer, SignIn  # PyJWT is imported where it is needed

    guard = Guard(allow_private=True)

    async def fetch(url: str) -> bytes:
        body = io.BytesIO()
        await guard.fetch_to(url, body, LIMITS)
        return body.getvalue()

    issuer = Issuer(section.issuer, section.audience, section.claim, section.rights)
    return SignIn(issuer, fetch, time.time)
