"""The certificates of nodes at control: signed for nodes that join or renew, and looked at when a node calls.

A session lasts no longer than the newest certificate of its node: `run` ends those that were not renewed. A
connection keeps the certificate that it began with, so renewals are counted here, where they are signed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from stoker.control.auth.authority import Authority, RequestRefused
from stoker.control.rules.nodes.certificates import (
    AuthorityEnded,
    Certified,
    outlived,
    why_not_certified,
)
from stoker.control.store.resources.keys import credential_id
from stoker.wire import newcomers
from stoker.wire.messages import CertificateAnswer

log = logging.getLogger(__name__)

LOOK_S = 1.0
REMEMBERED = 4096


class NodeCertificates:
    """The certificates of nodes. `read` returns the authority as its files have it now. `required`: a node
    without a certificate of its own opens no session. `life_s` is that of a new certificate."""

    def __init__(
        self, read: Callable[[], Authority], life_s: float, clock: Callable[[], float], *, required: bool
    ) -> None:
        self.authority = read()
        self.required = required
        self._read, self._life_s, self._clock = read, life_s, clock
        self._ends: dict[str, float] = {}
        self._refused: set[str] = set()

    def reload(self) -> None:
        """Reads the authority again. Raises what `read` raises, and changes nothing then."""
        self.authority = self._read()

    @property
    def trusted(self) -> bytes | None:
        """The authorities of which gRPC demands callers' certificates (PEM); None where it demands none."""
        return self.authority.pem + newcomers.authority() if self.required else None

    def refusal(self, token: str, shown: bytes | None) -> str | None:
        """Returns why a caller with this token, which is known, is refused for the certificate that it showed
        (PEM)."""
        if not self.required:
            return None
        certified = None if shown is None else self.authority.certified(shown)
        why = why_not_certified(certified, credential_id(token), self._clock())
        if why is not None:
            self._log_once(token, why)
        elif certified is not None:
            self._saw(certified)
        return why

    def _log_once(self, token: str, why: str) -> None:
        """Logs the first refusal of each credential: somebody may have stolen it."""
        credential = credential_id(token) or ""
        if credential not in self._refused and len(self._refused) < REMEMBERED:
            self._refused.add(credential)
            log.warning("credential %s is refused (further ones are not logged): %s", credential, why)

    def _saw(self, shown: Certified) -> None:
        self._ends[shown.node] = max(shown.ends_at, self._ends.get(shown.node, 0.0))

    def answer(self, node: str, credential: str, request: bytes) -> CertificateAnswer:
        """Returns a certificate for a node that came with this credential, or why there is none."""
        now = self._clock()
        try:
            made = self.authority.sign_node(request, node, credential_id(credential) or "", now, self._life_s)
        except (RequestRefused, AuthorityEnded) as why:
            log.warning("node %s gets no certificate: %s", node, why)
            return CertificateAnswer(refusal=str(why))
        certified = self.authority.certified(made)
        assert certified is not None
        self._saw(certified)
        log.info("node %s has a certificate for %.0f s", node, certified.ends_at - now)
        return CertificateAnswer(made, self.authority.pem)

    async def run(self, disconnect: Callable[[Iterable[str], str], None]) -> None:
        """Ends the sessions of nodes whose newest certificate has ended, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            over = outlived(self._ends, self._clock())
            for node in over:
                del self._ends[node]
            if over and self.required:
                disconnect(over, "its certificate has ended, and was not renewed")
