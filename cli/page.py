"""`stoker page`: the page's process, which serves browsers until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from stoker.cli.access import ca_file
from stoker.cli.errors import CliError
from stoker.cli.processes.readiness import MANAGER, announce
from stoker.cli.processes.stopping import on_first_signal
from stoker.cli.terminal import print_text
from stoker.client import dotenv
from stoker.page.access.oidc_code_flow import Client, is_secured
from stoker.page.app import Page, PageSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The options of `stoker page`. `url`: control's address. `names`: host names under which browsers reach
    the page, besides loopback. `client`: as whom an identity provider knows the page."""

    url: str
    host: str
    port: int
    names: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    client: Client | None = None
    ready_fd: int | None = None

    @property
    def secure(self) -> bool:
        return self.tls_cert is not None or self.behind_proxy


def run(options: PageOptions) -> None:
    """Serves the page until the first signal. Prints a link that signs in with STOKER_API_KEY, if that is
    set; browsers without the link sign in with a key of their own."""
    ca = ca_file()
    names = frozenset(options.names)
    settings = PageSettings(options.url, Path(ca) if ca else None, names, options.secure, options.client)
    page = Page(settings)
    with closing(_listen(options.host, options.port)) as listener:
        config = uvicorn.Config(
            page.asgi,
            log_level="warning",
            ws_max_size=1 << 20,
            timeout_graceful_shutdown=1,
            proxy_headers=False,
            ssl_certfile=options.tls_cert,
            ssl_keyfile=options.tls_key,
        )
        server = _Server(config, lambda: _announce(listener, page, options))
        asyncio.run(server.serve([listener]))


def client_of(issuer: str | None, client_id: str | None, scope: str) -> Client | None:
    """Returns the page as a client of the provider that the options name; None where they name none. Its
    secret is in the environment, as arguments can be read. Raises CliError."""
    if issuer is None and client_id is None:
        return None
    if issuer is None or client_id is None:
        raise CliError("--oidc-issuer and --oidc-client-id belong together: give both, or neither")
    if not is_secured(issuer):
        raise CliError(f"--oidc-issuer must be an https URL, or http of this host; got {issuer[:200]!r}")
    if "openid" not in scope.split():
        raise CliError(f'--oidc-scope must have openid, as in "openid groups"; got {scope[:200]!r}')
    return Client(issuer, client_id, os.environ.get("STOKER_OIDC_CLIENT_SECRET") or None, scope)


class _Server(uvicorn.Server):
    """A server that calls `on_started` once it listens, and leaves signals to the process."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with on_first_signal(self._end, self._renew):
            yield

    @MANAGER.reloading()
    def _renew(self) -> None:
        """Reads the certificate again at SIGHUP; open connections keep theirs."""
        context, cert, key = self.config.ssl, self.config.ssl_certfile, self.config.ssl_keyfile
        if not isinstance(context, ssl.SSLContext) or cert is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)  # a pair that fits
            context.load_cert_chain(cert, key)
        except OSError as error:
            log.error("SIGHUP: nothing was changed: %s and %s cannot be used: %s", cert, key, error)

    def _end(self) -> None:
        self.should_exit = True


def _announce(listener: socket.socket, page: Page, options: PageOptions) -> None:
    scheme = "https" if options.tls_cert else "http"
    address = f"{scheme}://{_reached(options.host)}:{listener.getsockname()[1]}"
    facts = {"page": address}
    if key := dotenv.lookup("STOKER_API_KEY", os.environ, Path.cwd()):
        facts["link"] = f"{address}/sign-in?token={page.link_token(key)}"
    if options.ready_fd is None:
        print_text(f"page  {facts.get('link', address)}")
        MANAGER.ready("serves")
    else:
        announce(facts, options.ready_fd)


def _listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises CliError where the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CliError(f"the page cannot listen on {host} port {port}: {error.strerror}") from None
    return listener


def _reached(host: str) -> str:
    """Returns the host of a link that this machine can open."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
