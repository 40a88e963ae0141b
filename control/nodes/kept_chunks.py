"""The answers to nodes that ask for chunks which an attempt's save covers."""

from __future__ import annotations

from stoker.control import store
from stoker.control.errors import Unavailable
from stoker.control.store.database.commits import Commits
from stoker.wire.messages import KeptAsk, KeptPage


class KeptChunks:
    """Gives a node the chunks that its own attempts go on from, and no others."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def page(self, node: str, ask: KeptAsk) -> KeptPage:
        """Returns the page, or why there is none; a store that cannot be read now is to be asked again."""
        try:
            return await self._commits.read(lambda conn: store.kept_page(conn, node, ask))
        except Unavailable as error:
            return KeptPage(ask.number, str(error), retryable=True)
