"""The watch for a notice that the cloud takes this host back. The answers are read by
`agent.host.reclaim_notices`.

    ask, every 5 s ── no notice ── ask again
                   ├─ no answer, or an odd one: logged once ── ask again
                   └─ a notice ──> `leave(why, seconds left)`, once, and the watch is over
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from stoker.agent.host.reclaim_notices import CLOUDS, Cloud, Notice, NoticeUnreadable, Question
from stoker.outbound.errors import OutboundError

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""The pause that AWS recommends. It is a sixth of the shortest notice."""

Ask = Callable[[str, str, Mapping[str, str]], Awaitable[tuple[int, bytes]]]
"""Sends a request (method, path, headers) to the metadata service; returns the status and the body."""


class ReclaimWatch:
    """The watch for notices that the cloud takes the host back. `node` is the name that the reason has.
    `wall` returns seconds since the epoch."""

    def __init__(
        self,
        cloud: str,
        node: str,
        ask: Ask,
        leave: Callable[[str, float], None],
        wall: Callable[[], float],
        every_s: float = EVERY_S,
    ) -> None:
        self._cloud: Cloud = CLOUDS[cloud]
        self._node, self._ask, self._leave = node, ask, leave
        self._wall, self._every_s = wall, every_s
        self._said = ""

    async def run(self) -> None:
        """Returns after the notice; until then it asks."""
        while (notice := await self._notice()) is None:  # noqa: ASYNC110  # it has to be asked
            await asyncio.sleep(self._every_s)
        why, left_s = notice.why(self._node), notice.left_s(self._wall())
        log.warning("%s: it leaves within %.0f s", why, left_s)
        self._leave(why, left_s)

    async def _notice(self) -> Notice | None:
        try:
            notice = await self._asked()
        except (OutboundError, NoticeUnreadable) as error:
            if self._said != str(error):
                log.warning("it is not known whether the cloud takes this host back: %s", error)
            self._said = str(error)
            return None
        self._said = ""
        return notice

    async def _asked(self) -> Notice | None:
        cloud, more, name = self._cloud, dict[str, str](), ""
        if cloud.token is not None:
            more = {cloud.token_header: await self._text(cloud.token, more)}
        if cloud.name is not None:
            name = await self._text(cloud.name, more)
        question = cloud.notice
        status, body = await self._ask(question.method, question.path, {**question.headers, **more})
        return cloud.read(status, body, name, self._wall())

    async def _text(self, question: Question, more: Mapping[str, str]) -> str:
        status, body = await self._ask(question.method, question.path, {**question.headers, **more})
        text = body.decode("ascii", "replace").strip()
        if status != 200 or not text.isprintable() or not text:
            raise NoticeUnreadable(f"{question.path} was answered with {status} {body[:200]!r}")
        return text
