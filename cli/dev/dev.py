"""`stoker dev`: serves an app on this machine, with its functions on the workers of live endpoints."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import typer

from stoker.cli.access import RESENDS, ca_file, client_errors
from stoker.cli.dev import platform
from stoker.cli.dev.live_endpoints.leaving import farewell
from stoker.cli.dev.live_endpoints.plan import question
from stoker.cli.dev.live_endpoints.provisioning import Provisioning
from stoker.cli.dev.local_server.callers import LOOPBACK, Callers
from stoker.cli.dev.local_server.calls import Calls
from stoker.cli.dev.local_server.display import Display
from stoker.cli.dev.local_server.listening import listen
from stoker.cli.dev.local_server.routing import local_routes
from stoker.cli.dev.local_server.server import LocalServer
from stoker.cli.dev.local_server.serving import serving, url_of
from stoker.cli.dev.once import run_script
from stoker.cli.dev.project import Project, checked, load
from stoker.cli.dev.reloading import Reloading
from stoker.cli.errors import CliError
from stoker.cli.processes.stopping import on_first_signal
from stoker.client import AsyncClient, ClientError, httpx2_adapter
from stoker.client.apps.resources import LIVE_PREFIX
from stoker.control.rules.limits import DEV_HOST, DEV_PORT
from stoker.outbound.refused_addresses import is_loopback

T = TypeVar("T")

LEAVES_S = 5.0
"""How long the platform may take to answer at the end."""


ENDED_BY_SIGNAL = 130
"""The exit status where Ctrl-C ended the program, as a shell reports it."""


@dataclass(frozen=True, slots=True)
class DevOptions:
    url: str
    data_dir: Path
    host: str = DEV_HOST
    port: int = DEV_PORT
    reload: bool = True
    auto_provision: bool = False
    yes: bool = False
    local: bool = False
    once: Path | None = None


def run(options: DevOptions, display: Display) -> int:
    """Serves the app in the current folder until Ctrl-C, or while the program runs that is to be run `once`.
    Returns its exit status. Raises CliError."""
    root, status = Path.cwd(), 0
    with closing(listen(options.host, options.port)) as listener:
        checked(root)
        if options.once is not None and not options.once.is_file():
            raise CliError(f"--once must name a program; there is no file {options.once}")
        if not is_loopback(options.host):
            display.say(f"warning: everybody who reaches {options.host} can call these functions", "yellow")

        async def work() -> None:
            nonlocal status
            with client_errors(options.url):
                async with _platform(options, display) as found, AsyncExitStack() as stack:
                    app = await _App.open(stack, found, options, display)
                    await stack.enter_async_context(app.read(root, reload=options.reload))
                    url = url_of(listener, options.host)
                    app.show(url, table=options.once is None)
                    if options.auto_provision:
                        await app.provision(yes=options.yes)
                    async with serving(app.server, listener):
                        if options.once is None:
                            await asyncio.Event().wait()
                        else:
                            status = ENDED_BY_SIGNAL
                            status = await run_script(options.once, url, found)

        asyncio.run(_until_signal(work))
        return status


def clean(options: DevOptions, display: Display) -> None:
    """Deletes the live endpoints of the project and of the local file."""
    names = [LIVE_PREFIX + one.name for one in load(Path.cwd()).endpoints]

    async def work() -> None:
        with client_errors(options.url):
            async with _platform(options, display) as found, _client(found) as stoker:
                provisioning = Provisioning(stoker, options.data_dir, display.say)
                await provisioning.start()
                removed = await provisioning.clean(names)
        display.say(f"deleted {', '.join(removed)}" if removed else "there is no live endpoint to delete")

    asyncio.run(work())


class _App:
    """The app while it is served."""

    def __init__(self, provisioning: Provisioning, server: LocalServer, display: Display) -> None:
        self._provisioning, self.server, self._display = provisioning, server, display
        self._project: Project

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        found: platform.Platform,
        options: DevOptions,
        display: Display,
    ) -> _App:
        stoker = await stack.enter_async_context(_client(found))
        http = await stack.enter_async_context(
            httpx2_adapter.service(found.url, found.key, 10.0, ca_file()).open_async()
        )
        provisioning = Provisioning(stoker, options.data_dir, display.say)
        await provisioning.start()
        if not options.local:
            stack.push_async_callback(_leave, provisioning, display)
        if options.once is not None:
            stack.push_async_callback(_remove_made, provisioning, display)
        stack.push_async_callback(provisioning.close)
        calls = Calls(stoker, http, provisioning, display)
        names = LOOPBACK | {options.host.lower()}
        here = is_loopback(options.host)
        callers = Callers(names if here else names | {socket.gethostname().lower()}, network=not here)
        return cls(provisioning, LocalServer(calls, provisioning.states, callers), display)

    def use(self, project: Project) -> None:
        """Serves this state of the app from now on."""
        self._routes, taken = local_routes(project)
        self._project = replace(project, problems=(*project.problems, *taken))
        self.server.serve(self._project, self._routes)

    def show(self, url: str, *, table: bool) -> None:
        if table:
            self._display.endpoints(self._routes, url)
        self._display.problems(self._project.problems)

    async def provision(self, *, yes: bool) -> None:
        """Raises CliError if a question has to be answered and nobody is there."""
        prompt = question(self._provisioning.plan(self._project.endpoints))
        if prompt is not None and not yes and not _confirmed(prompt):
            self._display.say("nothing was created; each endpoint is created when it is first called")
            return
        await self._provisioning.provision(self._project.endpoints)

    @asynccontextmanager
    async def read(self, root: Path, *, reload: bool) -> AsyncIterator[None]:
        """Serves the app during the block; with `reload`, as it is when a call comes."""
        reloading = Reloading(root, self._changed, self._display.say)
        self.use(await reloading.start())
        if not reload:
            yield
            return
        self.server.refresh = reloading.refresh
        watching = asyncio.create_task(reloading.watch(), name="watch")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    def _changed(self, project: Project, names: list[str]) -> None:
        before = {one.path for one in self._routes}, self._project.problems
        self.use(project)
        self._display.say(f"changed: {', '.join(names)}; the next call runs the new code")
        if self._project.problems != before[1]:
            self._display.problems(self._project.problems)
        routes = [f"{one.method} {one.path}" for one in self._routes if one.path not in before[0]]
        if routes:
            self._display.say(f"new: {', '.join(routes)}")


async def _remove_made(provisioning: Provisioning, display: Display) -> None:
    otherwise = "the live endpoints are not deleted: {}; later: stoker dev clean"
    if removed := await _in_time(provisioning.remove_made(), display, otherwise):
        display.say(f"deleted {', '.join(removed)}")


async def _leave(provisioning: Provisioning, display: Display) -> None:
    """Says what stays on the platform, where an endpoint has a minimum of 0 workers while no server runs."""
    otherwise = "what stays on the platform is not known: {}; see: stoker endpoint list"
    staying = await _in_time(provisioning.leave(), display, otherwise)
    if staying is None:
        return
    for sentence in farewell(staying):
        display.say(sentence)


async def _in_time(answer: Awaitable[T], display: Display, otherwise: str) -> T | None:
    """Returns the platform's answer. Where it fails or is late, says why in the sentence `otherwise`."""
    try:
        async with asyncio.timeout(LEAVES_S):
            return await answer
    except (ClientError, TimeoutError) as error:
        display.say(otherwise.format(str(error) or f"no answer within {LEAVES_S:g} s"), "yellow")
        return None


@asynccontextmanager
async def _platform(options: DevOptions, display: Display) -> AsyncIterator[platform.Platform]:
    if options.local:
        async with platform.local(options.data_dir, display.say) as found:
            yield found
    else:
        yield platform.configured(options.url, options.data_dir)


def _client(found: platform.Platform) -> AsyncClient:
    return AsyncClient(found.url, found.key, resends=RESENDS, ca_file=ca_file())


def _confirmed(prompt: str) -> bool:
    if not sys.stdin.isatty():
        raise CliError(f"{prompt} Nobody can answer, as there is no terminal: give --yes")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C ends the question
    try:
        return typer.confirm(prompt, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


async def _until_signal(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs `work` until it ends or a signal comes; then it is cancelled, and its end awaited."""
    working = asyncio.create_task(work())
    with on_first_signal(working.cancel):
        try:
            await working
        except asyncio.CancelledError:
            if not working.cancelled():
                raise
