"""The film of a running job, as it is made: the pieces of the job's stream, one behind the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

from stoker.client import AsyncClient
from stoker.client.errors import ClientError
from stoker.page.content.media import film_of, partial_of


async def film(client: AsyncClient, endpoint: str, job: str) -> AsyncIterator[bytes]:
    """Yields the pieces of a job's film from its first one, until the job ends. A job that begins again ends
    the film, because its pieces would not fit."""
    with suppress(ClientError):
        async with aclosing(client.events(endpoint, job)) as happened:
            async for event in happened:
                if event.kind in ("end", "reset"):
                    return
                piece = film_of(partial_of(event))
                if piece is not None:
                    yield piece
