"""The answers to requests of agents in their sessions: a node gets what its own work needs, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.control import store
from stoker.control.errors import Unavailable
from stoker.control.nodes.signing import Signing
from stoker.control.nodes.sources import Sources
from stoker.control.store.database.commits import Commits
from stoker.wire.messages import CertificateAnswer, KeptAsk, KeptPage, SignAnswer, SignAsk
from stoker.wire.streams import StreamEnded

if TYPE_CHECKING:  # it comes where the configuration has certificates of nodes
    from stoker.control.nodes.certifying import NodeCertificates


class Answers:
    """The answers to agents. `source` returns the archive of a handler's source by its digest."""

    def __init__(
        self, commits: Commits, signing: Signing, sources: Sources, certificates: NodeCertificates | None
    ) -> None:
        self._commits, self._signing, self._certificates = commits, signing, certificates
        self.source = sources.answer

    async def sign(self, node: str, request: SignAsk) -> SignAnswer:
        """Returns signed requests to the object store, or a refusal. Raises StreamEnded where the database
        cannot be read: the agent asks again in its next session."""
        try:
            return await self._signing.answer(node, request)
        except Unavailable as error:
            raise StreamEnded(f"{error}, and ask again") from error

    async def kept(self, node: str, ask: KeptAsk) -> KeptPage:
        """Returns a page of the chunks that a save of the node's own attempt covers, or why there is none; a
        database that cannot be read now is to be asked again."""
        try:
            return await self._commits.read(lambda conn: store.kept_page(conn, node, ask))
        except Unavailable as error:
            return KeptPage(ask.number, str(error), retryable=True)

    @property
    def certifies(self) -> bool:
        """True where control signs certificates of nodes."""
        return self._certificates is not None

    def certificate(self, node: str, credential: str, request: bytes) -> CertificateAnswer:
        """Returns a certificate of the node for its request, or a refusal."""
        if self._certificates is None:
            return CertificateAnswer(refusal="this control signs no certificates")
        return self._certificates.answer(node, credential, request)
