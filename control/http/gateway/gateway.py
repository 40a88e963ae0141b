"""The gateway: a request to a load-balancing endpoint, from its key to the last byte of its response.

    endpoint? ─no─> the application's own routes
        │yes
    key? ─no─> 401   may it? ─no─> 401   worker? ─none in 2 min─> 503   exchange ─not in time─> 504
                                           │ affinity: gone 404, not ready in 5 min 400    └─broken─> 502

No request that a worker may have begun is tried again: it must not be done twice. If a worker cannot be
reached, so that no byte of the request was sent, the request goes to another worker, or waits for one. If a
kept connection ends without a byte of an answer, a request that only reads is sent to the same worker once
more, if the worker still takes connections: mostly it was just closing the kept one.

An exchange may take as long as the endpoint's execution timeout, and 330 s at most; then its connection is
closed, as it is when the caller leaves, and the worker ends the request. The key is checked here and not
passed on; an exchange ends with it. Requests hold no slot: how many a worker has is counted, for the choice
and for scaling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from random import Random

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.control.auth.while_valid import while_valid
from stoker.control.bodies import CallerLeft
from stoker.control.errors import BadRequest, ControlError, NotFound, Unauthorized
from stoker.control.http.calls.answers import Answer, error_answer
from stoker.control.http.gateway import choice, paths
from stoker.control.http.gateway.connections import Connection, Connections
from stoker.control.http.gateway.exchange import READ_ONLY, Exchange, request_of
from stoker.control.http.gateway.headers import WORKER_ID, CallerFacts, Header, to_worker
from stoker.control.http.gateway.paths import Target
from stoker.control.http.gateway.reaching import Reaching
from stoker.control.http.gateway.refusals import (
    GatewayError,
    NoWorkers,
    Unanswered,
    UpstreamFailed,
    UpstreamTimeout,
    WorkerGone,
    WorkerTimeout,
)
from stoker.control.http.gateway.shared_origin import rules_others
from stoker.control.plane import Plane
from stoker.control.rules.access import Caller
from stoker.control.rules.types import LOAD_BALANCER, Endpoint
from stoker.outbound.wait_limits import Waiter

log = logging.getLogger(__name__)

NO_WORKER_S = 120.0
STRICT_S = 300.0
"""How long a request waits for any worker, and for the one that it names."""

EXCHANGE_S = 330.0
"""How long a request may take once it has a worker, if its endpoint allows no less."""

AGAIN_S = 1.0
"""How long a worker that could not be reached is left alone by a request that finds no other."""


class Gateway:
    """The gateway to the http workers of load-balancing endpoints. `otherwise` handles what names no
    load-balancing endpoint. `domain`: endpoints have names of their own below it."""

    def __init__(
        self,
        plane: Plane,
        reaching: Reaching,
        rng: Random,
        otherwise: ASGIApp,
        domain: str = "",
    ) -> None:
        self.requests = plane.requests
        self.connections = Connections(reaching.open)
        self._reaching, self._plane, self._rng = reaching, plane, rng
        self._otherwise, self._domain = otherwise, domain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = self.target(scope["raw_path"], dict(scope["headers"])) if scope["type"] == "http" else None
        if target is None:
            await self._otherwise(scope, receive, send)
            return
        request = _Request(target, scope, receive, send)
        try:
            await self._serve(request)
            self.requests.completed[request.endpoint] += 1
        except CallerLeft:
            return
        except (GatewayError, ControlError) as error:
            if isinstance(error, GatewayError):
                self.requests.failed[request.endpoint] += 1
            if request.exchange is not None and request.exchange.began:
                log.warning("a response of endpoint %s is broken off: %s", target.endpoint, error)
                return  # the server closes the connection of a response without an end
            await refusal(error)(scope, receive, send)

    def target(self, raw_path: bytes, headers: Mapping[bytes, bytes]) -> Target | None:
        """Returns the load-balancing endpoint that an address names; None where the address names none."""
        if self._domain and (by_host := self.by_host(headers, raw_path)) is not None:
            return by_host
        target = paths.of_path(raw_path)
        found = None if target is None else self._plane.endpoints.named(target.endpoint)
        return target if found is not None and found.type == LOAD_BALANCER else None

    def by_host(self, headers: Mapping[bytes, bytes], raw_path: bytes) -> Target | None:
        """Returns what the Host header names, whether or not such an endpoint exists."""
        host = headers.get(b"host", b"").decode("latin-1")
        return paths.of_host(host, self._domain, raw_path)

    # -- one request

    async def _serve(self, request: _Request) -> None:
        scope, target = request.scope, request.target
        headers: list[Header] = scope["headers"]
        endpoint, whose = await self.admit(target, scope["method"], dict(headers))
        request.endpoint = endpoint.id
        if rules_others(scope["raw_path"], target.prefix, headers):
            raise BadRequest(
                f"a service worker at {target.prefix} would rule the pages of all endpoints: serve its script"
                f" below {target.prefix}/"
            )
        caller = CallerFacts((scope["client"] or ("", 0))[0], scope["scheme"], target.prefix)
        query = scope["query_string"]
        path = target.path + b"?" + query if query else target.path
        head = request_of(scope["method"], path, to_worker(headers, caller), headers)
        incoming = Incoming(request.receive, whose)
        affinity = affinity_of(dict(headers))
        async with self.while_valid(endpoint, scope["method"], dict(headers)):
            try:
                await self._exchange(
                    request, head, endpoint, incoming, self.reached(endpoint, affinity, incoming)
                )
            except Unanswered as unanswered:
                await self._exchange(request, head, endpoint, incoming, self._again(unanswered))

    async def _exchange(
        self,
        request: _Request,
        head: h11.Request,
        endpoint: Endpoint,
        incoming: Incoming,
        reached: AbstractAsyncContextManager[Connection],
    ) -> None:
        """Sends the request to a worker, and its response to the caller."""
        async with reached as connection:
            prefix = request.target.prefix
            request.exchange = Exchange(connection, request.scope, incoming.receive, request.send, prefix)
            within_s = min(EXCHANGE_S, endpoint.execution_timeout_ms / 1000)
            try:
                async with asyncio.timeout(within_s):
                    await request.exchange.run(head)
            except TimeoutError:
                raise late(connection.worker, within_s) from None
            self.connections.give_back(connection)

    def while_valid(
        self, endpoint: Endpoint, method: str, headers: Mapping[bytes, bytes]
    ) -> AbstractAsyncContextManager[None]:
        """Returns a context for the rest of an admitted request, which ends when the key does. Raises
        Unauthorized."""

        def may(caller: Caller) -> bool:
            return caller.access.may(write=method not in READ_ONLY, endpoint=endpoint.id)

        return while_valid(self._plane.callers, _authorization(headers), may)

    async def admit(
        self, target: Target, method: str, headers: Mapping[bytes, bytes]
    ) -> tuple[Endpoint, Waiter]:
        """Returns the endpoint, if the caller may use it, and who the caller is. Raises ControlError."""
        caller = await self._plane.callers.find(_authorization(headers))
        endpoint = self._plane.endpoints.find(caller.account, target.endpoint, of_queue=False)
        if endpoint.type != LOAD_BALANCER:
            raise BadRequest(
                f"not allowed for QB API: endpoint {endpoint.id} takes jobs at /v2/{endpoint.id}/run"
            )
        if not caller.access.may(write=method not in READ_ONLY, endpoint=endpoint.id):
            raise Unauthorized(f"this key may not {method} at endpoint {target.endpoint}")
        return endpoint, Waiter(caller.account, caller.key, endpoint.id)

    @asynccontextmanager
    async def reached(
        self,
        endpoint: Endpoint,
        affinity: choice.Affinity | None,
        incoming: Incoming,
        *,
        new: bool = False,
    ) -> AsyncIterator[Connection]:
        """Yields a connection to a worker, which has one request more during the block; an error closes the
        connection. Where a worker cannot be reached, nothing was sent, so another worker is chosen or waited
        for. With `new`, no request had the connection before. Raises GatewayError and CallerLeft."""
        tried = _Tried(affinity is not None and affinity.strict)
        while True:
            worker = await self._worker_for(endpoint, affinity, incoming, tried)
            with self.requests.at(worker), self._reaching.share(worker, incoming.whose):
                try:
                    connection = await self.connections.connect(worker, new=new)
                except UpstreamFailed as failed:
                    tried.add(failed)
                    continue
                with _closed_by_errors(connection):
                    yield connection
                return

    @asynccontextmanager
    async def _again(self, unanswered: Unanswered) -> AsyncIterator[Connection]:
        """Yields a new connection to the same worker. Raises what failed before where the worker takes none:
        it died."""
        with self.requests.at(unanswered.worker):
            try:
                connection = await self.connections.connect(unanswered.worker, new=True)
            except UpstreamFailed:
                raise unanswered from None
            with _closed_by_errors(connection):
                yield connection

    async def _worker_for(
        self, endpoint: Endpoint, affinity: choice.Affinity | None, incoming: Incoming, tried: _Tried
    ) -> str:
        """Chooses a worker, or waits for one. Raises CallerLeft, NotFound and GatewayError."""
        if (worker := self._chosen(endpoint, affinity, tried.workers)) is not None:
            return worker
        with self.requests.wait(endpoint.id) as changed:
            leaving = asyncio.create_task(incoming.left(), name="watch a caller that waits for a worker")
            leaving.add_done_callback(lambda _: changed.set())
            try:
                async with asyncio.timeout_at(tried.deadline):
                    while (worker := self._chosen(endpoint, affinity, tried.workers)) is None:
                        await tried.wait(changed)
                        if leaving.done():
                            raise CallerLeft
            except TimeoutError:
                raise tried.in_vain(self._plane.scaling.reason(endpoint)) from None
            finally:
                leaving.cancel()
                await asyncio.wait((leaving,))
        return worker

    def _chosen(self, endpoint: Endpoint, affinity: choice.Affinity | None, tried: set[str]) -> str | None:
        """Returns the chosen worker, or None where the request must wait. Raises WorkerGone, and NotFound for
        a deleted endpoint."""
        if endpoint.id not in self._plane.endpoints.by_id:
            raise NotFound(f"no endpoint {endpoint.id!r}: it was deleted")
        workers = self._plane.cluster.of_endpoint(endpoint.id)
        ready = self._ready(endpoint, tried)
        candidates = [choice.Candidate(one.worker, one.worker in ready, one.requests) for one in workers]
        match choice.choose(candidates, affinity, self._rng.randrange):
            case choice.Chosen(worker):
                return worker
            case choice.Gone(worker):
                raise WorkerGone(f"worker {worker} does not exist any more")
            case choice.Wait():
                return None

    def _ready(self, endpoint: Endpoint, tried: set[str]) -> set[str]:
        """Returns the workers in rotation, without workers that were tried."""
        workers = self._plane.cluster.of_endpoint(endpoint.id)
        ready = {one.worker for one in workers if one.state == "ready" and not one.retiring}
        return {one for one in ready - tried if self._reaching.can(one)}


class _Request:
    """A request of a caller. `endpoint` is the id of the endpoint that admitted the caller. `exchange` is set
    once there is one."""

    def __init__(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        self.target, self.scope, self.receive, self.send = target, scope, receive, send
        self.endpoint = ""
        self.exchange: Exchange | None = None


@contextmanager
def _closed_by_errors(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


class _Tried:
    """The workers that could not be reached for a request, and until when it looks for one that can.
    `strict`: it allows one worker only."""

    def __init__(self, strict: bool) -> None:
        self.workers: set[str] = set()
        self.deadline = asyncio.get_running_loop().time() + (STRICT_S if strict else NO_WORKER_S)
        self._strict = strict
        self._last: UpstreamFailed | None = None

    def add(self, failed: UpstreamFailed) -> None:
        self.workers.add(failed.worker)
        self._last = failed

    async def wait(self, changed: asyncio.Event) -> None:
        """Waits for a change, or until those that were tried may be tried again."""
        again = asyncio.timeout(AGAIN_S if self.workers else None)
        try:
            async with again:
                await changed.wait()
        except TimeoutError:
            self.workers.clear()
        changed.clear()

    def in_vain(self, reason: str) -> GatewayError:
        """Returns why the request has found no worker in its time."""
        if self._last is not None:
            return self._last
        if self._strict:
            return WorkerTimeout("timed out waiting for worker")
        return NoWorkers(f"no workers available: {reason}")


class Incoming:
    """The messages of a caller, `whose`. `left` looks ahead, by one piece of the body at most."""

    def __init__(self, receive: Receive, whose: Waiter) -> None:
        self.whose = whose
        self._receive = receive
        self._message_ahead: Message | None = None

    async def receive(self) -> Message:
        message, self._message_ahead = self._message_ahead, None
        return await self._receive() if message is None else message

    async def left(self) -> None:
        """Returns when the caller has left. Does not return while more of its body is to come."""
        if self._message_ahead is None:
            self._message_ahead = await self._receive()
        if self._message_ahead["type"] == "http.request" and self._message_ahead.get("more_body", False):
            await asyncio.Event().wait()
        while self._message_ahead["type"] != "http.disconnect":
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._message_ahead = message


def _authorization(headers: Mapping[bytes, bytes]) -> str | None:
    key = headers.get(b"authorization")
    return None if key is None else key.decode("latin-1")


def affinity_of(headers: Mapping[bytes, bytes]) -> choice.Affinity | None:
    """Raises BadRequest."""
    named = headers.get(WORKER_ID)
    if named is None:
        return None
    try:
        return choice.parse_affinity(named.decode("latin-1"))
    except ValueError as error:
        raise BadRequest(f"{WORKER_ID.decode()}: {error}") from None


def late(worker: str, within_s: float) -> UpstreamTimeout:
    return UpstreamTimeout(worker, f"did not respond within {within_s:g} s")


def refusal(error: GatewayError | ControlError) -> Answer:
    """Returns the answer to an error, which names the worker that failed, if one did."""
    if not isinstance(error, GatewayError):
        return error_answer(error)
    answer = error.answer()
    if not error.worker:
        return answer
    return Answer(answer.body, answer.status, (*answer.more, (WORKER_ID, error.worker.encode())))
