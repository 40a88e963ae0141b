"""The secret that webhooks are signed with, and its rotation in two steps: a new one, then the end of the one
before. Deliveries read it from the store each time, so a change counts from the next delivery."""

from __future__ import annotations

from stoker.control import store
from stoker.control.errors import BadRequest
from stoker.control.store.database.commits import Commits

TWO_ALREADY = (
    "webhooks are signed with two secrets already: give all receivers the newer one, and drop the older by"
    " stoker key webhook-secret --drop-old"
)
ONE_ONLY = "webhooks are signed with one secret only: there is no old one to drop"


class WebhookSecret:
    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def show(self) -> str:
        """Returns the newest secret; the first call makes it."""
        return await self._commits.commit(store.webhook_secret)

    async def rotate(self) -> str:
        """Makes a new secret, beside which deliveries are signed with the one before as well. Raises
        BadRequest where there is one before already."""
        made = await self._commits.commit(store.rotate_webhook_secret)
        if made is None:
            raise BadRequest(TWO_ALREADY)
        return made

    async def drop_old(self) -> None:
        """Ends the signatures with the secret before. Raises BadRequest where there is none."""
        if not await self._commits.commit(store.drop_webhook_secret):
            raise BadRequest(ONE_ONLY)
