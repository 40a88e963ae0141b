"""Signs requests to the object store for nodes, which hold no credentials, by
`rules.signing_rights`."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from stoker.control import store
from stoker.control.errors import ControlError, Unavailable
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.rules.signing_rights import refusal
from stoker.control.rules.types import UploadRight
from stoker.control.store import Conn
from stoker.control.store.database.commits import Commits
from stoker.wire.messages import WANTED_MOST, SignAnswer, SignAsk

log = logging.getLogger(__name__)

MAX_LOGGED = 1_024
"""Refusals that are remembered, so that each is logged once."""


class Signing:
    def __init__(self, commits: Commits, artifacts: Artifacts) -> None:
        self._commits = commits
        self._artifacts = artifacts
        self._logged: set[tuple[str, str]] = set()

    async def answer(self, node: str, request: SignAsk) -> SignAnswer:
        """Raises Unavailable where it is unknown now what the node holds."""

        def find(conn: Conn) -> UploadRight | None:
            right = store.upload_right(conn, node, request.job, request.attempt)
            return None if right is None else _with_kept(conn, request, right)

        right = await self._commits.read(find)
        if right is None:  # an attempt is sent while its submission is still being written: look behind that
            right = await self._commits.commit(find)
        if why := refusal(request, right):
            self._log_once(node, why)
            return SignAnswer(request.number, refusal=why)
        try:
            return SignAnswer(request.number, signed=await self._artifacts.sign(request.wanted))
        except ControlError as error:
            return SignAnswer(request.number, str(error), retryable=isinstance(error, Unavailable))

    def _log_once(self, node: str, why: str) -> None:
        """Logs a refusal once, however often it is repeated."""
        if len(self._logged) >= MAX_LOGGED:
            self._logged.clear()
        if (node, why) not in self._logged:
            self._logged.add((node, why))
            log.warning("a request to the object store is refused to node %s: %s", node, why)


def _with_kept(conn: Conn, request: SignAsk, right: UploadRight) -> UploadRight:
    """Adds the chunks that the save of the attempt covers, of those that are to be read."""
    own = {right.input_key, right.save_key}
    wanted = {one.key for one in request.wanted[:WANTED_MOST] if one.verb == "read"} - own
    return replace(right, kept_keys=frozenset(key for key in wanted if store.is_kept(conn, request.job, key)))
