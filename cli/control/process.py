"""The control process: store, object store, plane, gRPC and HTTP, until a signal stops it.

    open the store ─> adopt the tokens ─> object store ─> plane ─> gRPC, HTTP ─> ready ─> ... ─> signal
                                                                                               │
    no new jobs <── DRAIN_S, or no connection is left <── held polls are answered; each connection ends
         │                                                with its next answer, and none is accepted
         └─> HTTP ends ─> sessions end ─> gRPC ends ─> plane ─> object store ─> store

Connections that arrive from then on wait in the listener's queue for the next control, where both hold the
listener. HTTP ends before the agents' sessions: the tunnels to their http workers end with them.

Without a configured object store, it starts the embedded one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from random import SystemRandom
from typing import Any, BinaryIO

import uvloop
from starlette.types import ASGIApp

from stoker import __version__
from stoker.cli.audit_log import local_user
from stoker.cli.control import s3_settings
from stoker.cli.control.agent_certificates import ends_of
from stoker.cli.control.database import check_chosen, chosen_url, open_chosen
from stoker.cli.control.declared import Declared, declared, plane_settings
from stoker.cli.control.oidc import sign_in
from stoker.cli.control.renewal import Renewal
from stoker.cli.control.standby import before_stop, listening, once_there, take_lead
from stoker.cli.control.token_source import API_KEY, JOIN_TOKEN, TokenSource
from stoker.cli.control.tracing import traces
from stoker.cli.daemons.options import ControlOptions
from stoker.cli.data_folder import DataFolder
from stoker.cli.errors import CliError
from stoker.cli.processes.imports import uncollected
from stoker.cli.processes.readiness import MANAGER, announce
from stoker.cli.processes.stopping import on_first_signal
from stoker.control.auth.connection_shares import raise_open_files
from stoker.control.config.sections import Config
from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.front import note_requests
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.http.gateway.gateway import Gateway
from stoker.control.http.gateway.reaching import Reaching
from stoker.control.http.gateway.upgrades import Upgrades
from stoker.control.http.health.checks import EMBEDDED_BEYOND, Readiness, checks_of, warnings_of
from stoker.control.http.health.probes import probes
from stoker.control.http.server.forwarded import Proxies
from stoker.control.http.server.lazily import Lazily
from stoker.control.http.server.listener import adopted
from stoker.control.http.server.server import HttpServer, serve_http
from stoker.control.jobs.artifacts import S3Artifacts
from stoker.control.jobs.webhooks import Post
from stoker.control.nodes.grpc_stream import GrpcServer, serve
from stoker.control.plane import Plane
from stoker.control.resources.declared.decision import Decision
from stoker.control.rules.types import Endpoint
from stoker.control.store import DEFAULT_ACCOUNT, Conn, begin_audit, end_audit
from stoker.control.store.database.commits import Commits, Committer
from stoker.control.store.database.opening import Store, StoreError
from stoker.control.store.resources import keys
from stoker.outbound.guard import Guard
from stoker.outbound.refused_addresses import is_loopback
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.local_server import LocalS3
from stoker.outbound.wait_limits import WEBHOOKS, Waiter

log = logging.getLogger(__name__)

DRAIN_S = 0.25
"""How long a caller with an idle connection has to come back for an answer that closes the connection. For
this time others wait."""

DATABASE_LOOK_S = 1.0
"""How often control looks whether the database file is still the one that it opened."""


def run(options: ControlOptions, variables: Mapping[str, str]) -> None:
    raise_open_files()
    note_requests()
    uvloop.run(run_control(options, variables))


async def run_control(options: ControlOptions, variables: Mapping[str, str]) -> None:
    """Runs control until it is stopped. `variables` are the STOKER_ variables of the environment."""
    stop = asyncio.Event()
    declares = declared(options, variables)
    folder = DataFolder.make(options.data_dir)
    async with AsyncExitStack() as stack:
        reading = partial(declared, options, variables)
        renewals = [] if options.standby else [Renewal(declares, reading)]

        def reload() -> None:
            for renewed in renewals:
                renewed.ask()
            if not renewals:
                with MANAGER.reloading():
                    pass  # a standby reads all at its take-over

        stack.enter_context(on_first_signal(stop.set, reload))
        url = chosen_url(declares.config, variables, options.database)
        if options.standby:
            if not await before_stop(_checked(folder, url, variables), stop):
                return
            await asyncio.to_thread(_load_store)
        opened = partial(open_chosen, folder, declares.config, variables, options.database, alone=True)
        store = await before_stop(
            take_lead(stack, folder, url, opened, options.ready_fd, standby=options.standby), stop
        )
        if store is None:
            return
        stack.callback(store.close)
        # Until its last commit: a control that does not count loses the lead to a standby.
        counting = asyncio.create_task(store.database.keep_lead(), name="lead of the database")
        stack.push_async_callback(_end, counting)
        if options.standby:  # it may have waited for weeks
            declares = await asyncio.to_thread(reading)
            renewals.append(Renewal(declares, reading))
        await _lead(stack, store, folder, declares, options, variables, stop, renewals[0])


async def _checked(folder: DataFolder, url: str | None, variables: Mapping[str, str]) -> bool:
    """Returns True once the store is one that this process could open. Raises StoreError and SecretKeyError
    where it could not."""
    await once_there(lambda: asyncio.to_thread(check_chosen, folder, url, variables))
    return True


async def _lead(
    stack: AsyncExitStack,
    store: Store,
    folder: DataFolder,
    declares: Declared,
    options: ControlOptions,
    variables: Mapping[str, str],
    stop: asyncio.Event,
    renewed: Renewal,
) -> None:
    """Serves callers and agents until `stop`; the stack ends what is started here."""
    config, endpoints, tls = declares.config, declares.endpoints, declares.tls
    commits = Committer(store)
    stack.push_async_callback(commits.close)
    await adopt_tokens(commits, variables)
    s3 = s3_settings.from_config(config) or s3_settings.from_environment(variables)
    embedded_beyond = s3 is None and not is_loopback(options.grpc_host)
    artifacts = S3Artifacts(s3 or await _embedded_store(stack, folder, beyond=embedded_beyond))
    stack.push_async_callback(artifacts.close)
    await artifacts.start()
    settings = plane_settings(options, declares, folder)
    traced = await traces(stack, os.environ)
    plane = Plane(
        settings, commits, artifacts, time.time, SystemRandom(), _poster(config), traced, declares.nodes
    )
    plane.callers.sign_in = sign_in(config)
    await plane.start(endpoints)
    await stack.enter_async_context(_running(plane.run(), "plane", stop))
    await stack.enter_async_context(_running(_watched(store, plane), "database file and loop", stop))
    grpc = await _grpc(plane, options, declares)
    stack.push_async_callback(grpc.stop)
    stack.push_async_callback(plane.stop)
    gateways: list[Gateway] = []

    def gateway(otherwise: ASGIApp) -> ASGIApp:
        reaching = Reaching(plane.cluster, plane.tunnels, time.time)
        gateways.append(Gateway(plane, reaching, SystemRandom(), otherwise, config.gateway_domain))
        stack.callback(gateways[0].connections.close)
        return gateways[0]

    def warned() -> tuple[str, ...]:
        return warnings_of(renewed.certificate, renewed.authority, _now, embedded_beyond=embedded_beyond)

    checks = checks_of(commits, artifacts, folder.root, lambda: renewed.certificate, _now)
    plane.scrapes.certificates = lambda: ends_of(renewed.certificate, declares.nodes)
    readiness = Readiness(checks, warned, time.monotonic)
    management = Lazily(lambda: _management_app(plane))
    app = make_app(plane, _api_settings(config, folder), management, gateway, probes(readiness))
    behind_proxy = options.behind_proxy or config.behind_proxy
    proxies = Proxies.parse(config.trusted_proxies) if behind_proxy else None
    http = await listening(
        lambda: serve_http(
            app,
            options.host,
            options.port,
            tls=None if behind_proxy else tls,
            proxies=proxies,
            upgrade=Upgrades(gateways[0], proxies).protocol,
            listener=None if options.http_fd is None else adopted(options.http_fd),
        ),
        standby=options.standby,
    )
    await stack.enter_async_context(_serving(http, stop))
    renewed.doors += [http, grpc]
    reloads = renewed.run(partial(_take_over, plane, options, folder))
    await stack.enter_async_context(_running(reloads, "files read again at SIGHUP", stop))
    facts = _facts(http, options.grpc_host, grpc, endpoints)
    _log_start(store.database.name, artifacts.grant.endpoint_url, folder, facts)
    announce(facts, options.ready_fd)
    await stop.wait()
    log.info("control stops; a second signal ends it at once")
    http.drain()
    plane.end_waits()
    await http.drained(DRAIN_S)
    plane.close()


async def _grpc(plane: Plane, options: ControlOptions, declares: Declared) -> GrpcServer:
    """Returns the server of agents, once it listens."""
    return await listening(
        lambda: serve(
            options.grpc_host,
            options.grpc_port,
            plane.nodes.admit,
            plane.nodes.serve,
            None if options.grpc_plain else declares.tls,
            plane.live_logs.serve,
            plane.tunnels.serve,
            declares.nodes,
        ),
        standby=options.standby,
    )


async def _take_over(
    plane: Plane, options: ControlOptions, folder: DataFolder, declares: Declared
) -> Decision:
    """Lets the plane use what the files declare now."""
    return await plane.reload(declares.endpoints, plane_settings(options, declares, folder))


def _log_start(database: str, objects: str, folder: DataFolder, facts: Mapping[str, str]) -> None:
    log.info(
        "stoker %s; database %s, object store %s, data folder %s",
        *(__version__, database, objects, folder.root),
    )
    log.info("control listens: HTTP %s, gRPC %s", facts["http"], facts["grpc"])


def _poster(config: Config) -> Post:
    """Posts webhooks through the guard."""
    guard = Guard(allow_private=config.allow_private_addresses)

    async def post(url: str, body: bytes | BinaryIO, headers: Mapping[str, str], whose: Waiter) -> int:
        return await guard.post_json(url, body, headers, WEBHOOKS.within_s(), whose)

    return post


def _management_app(plane: Plane) -> ASGIApp:
    """Returns what serves /v1. Its models and routes take 0.3 s, for which no restart has to wait."""
    from stoker.control.http.management.app import make_management_app

    with uncollected():
        return make_management_app(plane)


def _api_settings(config: Config, folder: DataFolder) -> ApiSettings:
    limits = config.rate_limits
    return ApiSettings(
        rate_limits=limits.enabled,
        requests_per_worker=limits.requests_per_worker,
        cors_origins=config.cors.origins,
        gateway_domain=config.gateway_domain,
        spool=str(folder.spool),
    )


def _facts(
    http: HttpServer, grpc_host: str, grpc: GrpcServer, endpoints: Sequence[Endpoint]
) -> dict[str, str]:
    host = f"[{grpc_host}]" if ":" in grpc_host else grpc_host
    ids = " ".join(endpoint.id for endpoint in endpoints)
    return {"http": http.url, "grpc": f"{host}:{grpc.port}", "endpoints": ids}


async def adopt_tokens(commits: Commits, variables: Mapping[str, str]) -> None:
    """Makes the API key and the join token of the environment valid. A new one gets a line in the audit
    log."""
    now = time.time()
    tokens: list[tuple[keys.Kind, str]] = [("key", API_KEY), ("join", JOIN_TOKEN)]
    for kind, variable in tokens:
        token = variables.get(variable)
        if not token:
            continue
        source = TokenSource.from_environment(variable, variables)

        def begin(conn: Conn, kind: keys.Kind = kind, token: str = token) -> int | None:
            if keys.known(conn, kind, token):
                return None
            return begin_audit(conn, DEFAULT_ACCOUNT, local_user(), now, "POST", "/v1/keys")

        def adopt(conn: Conn, kind: keys.Kind = kind, token: str = token, name: str = source.name) -> bool:
            return keys.adopt(conn, kind, token, name=name, now=now)

        line = await commits.commit(begin)
        adopted = await commits.commit(adopt)
        if line is not None:
            status = 200 if adopted else 400
            await commits.commit(partial(end_audit, n=line, status=status, message=""))
        if not adopted:
            raise CliError(source.revoked)


def _now() -> datetime:
    return datetime.now(UTC)


def _load_store() -> None:
    """Loads what the object store's first call needs: a standby has time for it before it leads."""
    from stoker.outbound.s3.client import load

    load()


async def _embedded_store(stack: AsyncExitStack, folder: DataFolder, *, beyond: bool) -> ObjectStoreConfig:
    if beyond:
        log.warning("%s", EMBEDDED_BEYOND)
    embedded = await stack.enter_async_context(LocalS3(folder.root))
    return embedded.config


@asynccontextmanager
async def _running(running: Coroutine[Any, Any, None], name: str, stop: asyncio.Event) -> AsyncIterator[None]:
    """Runs this during the block. If it fails, control stops with its error."""
    work = asyncio.create_task(running, name=name)
    work.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        if not work.done():
            work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()


async def _watched(store: Store, plane: Plane) -> None:
    """Measures the loop's lag, and watches the database: raises StoreError."""
    lag = asyncio.create_task(plane.counters.watch_lag(), name="lag of the loop")
    try:
        await _watch_database(store)
    finally:
        await _end(lag)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _watch_database(store: Store) -> None:
    """Raises StoreError once the database file was deleted or replaced, as nothing that control goes on to
    store would be found at the next start, or once another control has the lead."""
    while True:
        lost = store.database.lost()
        if lost is not None:
            raise StoreError(f"{lost} while control was running; control ends, start it again")
        await asyncio.sleep(DATABASE_LOOK_S)


@asynccontextmanager
async def _serving(http: HttpServer, stop: asyncio.Event) -> AsyncIterator[None]:
    """Watches the HTTP server during the block. If it ends by itself, control stops with a CliError."""
    ended = asyncio.create_task(http.wait(), name="http server watched")
    ended.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        by_itself = ended.done()
        with suppress(Exception):  # `ended` raises it too
            await http.stop()
        await asyncio.wait([ended])
        if by_itself or ended.exception():
            why = ended.exception() or "without a signal"
            raise CliError(f"the HTTP server ended: {why}") from ended.exception()
