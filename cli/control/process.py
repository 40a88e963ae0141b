"""The control process: store, object store, plane, gRPC and HTTP in one, until it is told to stop.

    open the store ─> adopt the tokens ─> object store ─> plane ─> gRPC, HTTP ─> ready ─> ... ─> signal
                                                                                               │
    store  <──── object store <──── plane <──── HTTP ends <──── gRPC ends <──── drains: no new jobs, agents
                                                                             are told, who is held is answered

Without a configured object store it starts the embedded one itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom

import uvloop

from stoker.cli import s3_settings
from stoker.cli.data_folder import DataFolder, held_at_last
from stoker.cli.database import open_chosen
from stoker.cli.errors import CliError
from stoker.cli.hosted import declared
from stoker.cli.readiness import announce
from stoker.cli.stopping import on_first_signal
from stoker.cli.token_source import API_KEY, JOIN_TOKEN, Source
from stoker.control import keys
from stoker.control.api.app import make_app
from stoker.control.api.management.app import make_management_app
from stoker.control.api.seam import ApiSettings
from stoker.control.api.server import HttpServer, serve_http
from stoker.control.artifacts import S3Artifacts
from stoker.control.commit import Commits, Committer
from stoker.control.config import device_prices, load_config, price_list, registry_auths
from stoker.control.config_sections import Config
from stoker.control.grpc_stream import GrpcServer, TlsFiles, serve
from stoker.control.plane import Plane
from stoker.control.settings import PlaneSettings
from stoker.control.store import Conn
from stoker.control.types import Endpoint
from stoker.control.webhooks import Post
from stoker.outbound.guard import Guard
from stoker.outbound.local_s3 import LocalS3
from stoker.outbound.objects import ObjectStoreConfig

log = logging.getLogger(__name__)

WEBHOOK_S = 10.0
"""A receiver has so long to answer."""


@dataclass(frozen=True, slots=True)
class ControlOptions:
    data_dir: Path
    config: Path | None
    host: str
    port: int
    grpc_host: str
    grpc_port: int
    hosted: tuple[str, ...] = ()
    database: str | None = field(default=None, repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    ready_fd: int | None = None

    def tls(self) -> TlsFiles | None:
        if self.tls_cert is None and self.tls_key is None and self.tls_client_ca is None:
            return None
        if self.tls_cert is None or self.tls_key is None:
            raise CliError("TLS needs both --tls-cert and --tls-key")
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca)


def run(options: ControlOptions, given: Mapping[str, str]) -> None:
    uvloop.run(run_control(options, given))


async def run_control(options: ControlOptions, given: Mapping[str, str]) -> None:
    """`given` are the STOKER_ variables that came with the environment."""
    stop = asyncio.Event()
    folder = DataFolder.make(options.data_dir)
    config = load_config(options.config)
    endpoints = declared(config, options.hosted, given)
    async with AsyncExitStack() as stack:
        otherwise = f"another control is running on {folder.root}"
        await stack.enter_async_context(held_at_last(folder.control_lock, otherwise))
        stack.enter_context(on_first_signal(stop.set))
        store = open_chosen(folder, config, given, options.database, alone=True)
        stack.callback(store.close)
        commits = Committer(store)
        stack.push_async_callback(commits.close)
        await adopt_tokens(commits, given)
        artifacts = S3Artifacts(await _object_store(stack, config, given, folder))
        stack.push_async_callback(artifacts.close)
        await artifacts.start()
        settings = PlaneSettings(
            retention_s=config.retention.async_s,
            retention_sync_s=config.retention.sync_s,
            allow_private_addresses=config.allow_private_addresses,
            aliases=config.aliases,
            price_list=price_list(config),
            registries=registry_auths(config),
            local_roots=config.local_roots,
            local_base=str(options.config.resolve().parent) if options.config else "/",
            prices=device_prices(config),
        )
        plane = Plane(settings, commits, artifacts, time.time, SystemRandom(), _poster(config))
        await plane.start(endpoints)
        await stack.enter_async_context(_running(plane, stop))
        host, tls = options.grpc_host, options.tls()
        grpc = await serve(host, options.grpc_port, plane.serve_node, tls, plane.serve_logs)
        stack.push_async_callback(grpc.stop)
        app = make_app(plane, _api_settings(config), make_management_app(plane))
        http = await serve_http(app, options.host, options.port)
        await stack.enter_async_context(_serving(http, stop))
        facts = _facts(http, options.grpc_host, grpc, endpoints)
        log.info("control listens: HTTP %s, gRPC %s", facts["http"], facts["grpc"])
        announce(facts, options.ready_fd)
        await stop.wait()
        log.info("control stops; a second signal ends it at once")
        await plane.stop()
        await grpc.stop()


def _poster(config: Config) -> Post:
    """Webhooks go out through the guard."""
    guard = Guard(allow_private=config.allow_private_addresses)

    async def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
        return await guard.post_json(url, body, headers, timeout=WEBHOOK_S)

    return post


def _api_settings(config: Config) -> ApiSettings:
    limits = config.rate_limits
    return ApiSettings(
        rate_limits=limits.enabled,
        requests_per_worker=limits.requests_per_worker,
        cors_origins=config.cors.origins,
    )


def _facts(
    http: HttpServer, grpc_host: str, grpc: GrpcServer, endpoints: Sequence[Endpoint]
) -> dict[str, str]:
    host = f"[{grpc_host}]" if ":" in grpc_host else grpc_host
    ids = " ".join(endpoint.id for endpoint in endpoints)
    return {"http": http.url, "grpc": f"{host}:{grpc.port}", "endpoints": ids}


async def adopt_tokens(commits: Commits, given: Mapping[str, str]) -> None:
    """The API key and the join token that the environment brings are valid from now on."""
    now = time.time()
    wanted: list[tuple[keys.Kind, str]] = [("key", API_KEY), ("join", JOIN_TOKEN)]
    for kind, variable in wanted:
        token = given.get(variable)
        if not token:
            continue
        source = Source.told(variable, given)

        def adopt(conn: Conn, kind: keys.Kind = kind, token: str = token, name: str = source.name) -> bool:
            return keys.adopt(conn, kind, token, name=name, now=now)

        if not await commits.commit(adopt):
            raise CliError(source.revoked)


async def _object_store(
    stack: AsyncExitStack, config: Config, given: Mapping[str, str], folder: DataFolder
) -> ObjectStoreConfig:
    found = s3_settings.from_config(config) or s3_settings.from_environment(given)
    if found is None:
        embedded = await stack.enter_async_context(LocalS3(folder.root))
        found = embedded.config
    return found


@asynccontextmanager
async def _running(plane: Plane, stop: asyncio.Event) -> AsyncIterator[None]:
    """The plane's own work beside the block. If it ends by an error, so does everything, with that error."""
    work = asyncio.create_task(plane.run(), name="plane")
    work.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        if not work.done():
            work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()


@asynccontextmanager
async def _serving(http: HttpServer, stop: asyncio.Event) -> AsyncIterator[None]:
    """HTTP beside the block. If it ends by itself, so does everything, with a sentence."""
    ended = asyncio.create_task(http.wait(), name="http server watched")
    ended.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        by_itself = ended.done()
        with suppress(Exception):  # `ended` has it too
            await http.stop()
        await asyncio.wait([ended])
        if by_itself or ended.exception():
            why = ended.exception() or "nothing told it to"
            raise CliError(f"the HTTP server ended: {why}") from ended.exception()
