"""The page as an ASGI application: its routes, behind the guard."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from nicegui import ui
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from stoker.page.access.connections import Connection, Connections
from stoker.page.access.guard import Guard, token_of
from stoker.page.access.oidc_code_flow import Client
from stoker.page.access.sessions import Sessions
from stoker.page.access.signing_in import SigningIn
from stoker.page.access.token_renewal import Renewals
from stoker.page.content.film import film
from stoker.page.views import billing, endpoint, endpoints, fleet, jobs, playground, resources, style
from stoker.page.views.frame import LIVE_S

if TYPE_CHECKING:
    from stoker.page.access.identity_provider import IdentityProvider

ANSWER_S = 60.0
"""The longest that control may take to answer what a page needs."""


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The settings of the page. `url`: control's address. `names`: host names under which browsers reach the
    page, besides loopback. `secure`: browsers reach it over TLS. `client`: as whom an identity provider knows
    the page, where people sign in at one."""

    url: str
    ca_file: Path | None = None
    names: frozenset[str] = frozenset()
    secure: bool = False
    client: Client | None = None


class Page:
    """The page of one control. One of them lives in a process, since NiceGUI keeps its routes globally."""

    def __init__(self, settings: PageSettings, clock: Callable[[], float] = time.time) -> None:
        self._settings, self._clock = settings, clock
        self._sessions = Sessions()
        self._connections = Connections(settings.url, settings.ca_file)
        self._app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=self._lifespan)
        self._provider = None if settings.client is None else _at(settings.client, clock)
        self._renewals = None
        if self._provider is not None:
            self._renewals = Renewals(self._provider, self._sessions, self._connections, clock)
        SigningIn(
            *(self._sessions, self._connections, self._provider, self._renewals),
            secure=settings.secure,
            clock=clock,
        ).add_to(self._app)
        style.use()
        self._add_pages()
        ui.run_with(
            self._app,
            title="Stoker",
            language="en-US",
            dark=None,
            gzip_middleware_factory=None,
            show_welcome_message=False,
            storage_secret=None,
        )

    @property
    def asgi(self) -> ASGIApp:
        return GZipMiddleware(Guard(self._app, self._is_signed_in, self._settings.names))

    def link_token(self, key: str) -> str:
        """Returns a new one-time token for the path `/sign-in?token=…`, which signs in with this key."""
        token = secrets.token_urlsafe(32)
        self._sessions.offer_link(key, token, self._clock())
        return token

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        async with nullcontext() if self._renewals is None else self._renewals.running():
            yield
        await self._connections.close()
        if self._provider is not None:
            await self._provider.close()

    def _is_signed_in(self, token: str) -> bool:
        return self._sessions.key_of(token, self._clock()) is not None

    def _connection(self, request: Request) -> Connection:
        """Returns the connection of the request's session, which the guard has seen."""
        key = self._sessions.key_of(token_of(request.headers), self._clock())
        assert key is not None
        return self._connections.of(key)

    def _opened(self, request: Request) -> Connection:
        """Returns the connection of a page that stays open, and ends the page with its session."""
        token, client = token_of(request.headers), ui.context.client

        def look() -> None:
            if not self._is_signed_in(token):
                ui.navigate.to("/sign-in")
                client.delete()

        ui.timer(LIVE_S, look)
        return self._connection(request)

    def _add_pages(self) -> None:
        @ui.page("/", response_timeout=ANSWER_S)
        async def _(request: Request, endpoint: str = "") -> None:
            await playground.show(self._opened(request), endpoint)

        @ui.page("/jobs", response_timeout=ANSWER_S)
        async def _(request: Request, endpoint: str = "") -> None:
            await jobs.show_list(self._opened(request), endpoint)

        @ui.page("/jobs/{endpoint}/{job}", response_timeout=ANSWER_S)
        async def _(request: Request, endpoint: str, job: str) -> None:
            await jobs.show_one(self._opened(request), endpoint, job)

        @ui.page("/endpoints", response_timeout=ANSWER_S)
        async def _(request: Request) -> None:
            await endpoints.show(self._opened(request))

        @ui.page("/endpoints/{name}", response_timeout=ANSWER_S)
        async def _(request: Request, name: str) -> None:
            await endpoint.show(self._opened(request), name)

        @ui.page("/fleet", response_timeout=ANSWER_S)
        async def _(request: Request) -> None:
            await fleet.show(self._opened(request))

        @ui.page("/billing", response_timeout=ANSWER_S)
        async def _(request: Request) -> None:
            await billing.show(self._opened(request))

        @ui.page("/resources", response_timeout=ANSWER_S)
        async def _(request: Request, kind: str = "") -> None:
            await resources.show(self._opened(request), kind)

        @self._app.get("/film/{endpoint}/{job}")
        async def _(request: Request, endpoint: str, job: str) -> StreamingResponse:
            connection = self._connection(request)
            return StreamingResponse(film(connection.client, endpoint, job), media_type="video/mp4")


def _at(client: Client, clock: Callable[[], float]) -> IdentityProvider:
    """Returns the provider of this client. What reads its tokens is loaded where there is one alone."""
    from stoker.page.access.identity_provider import IdentityProvider

    return IdentityProvider(client, clock)
