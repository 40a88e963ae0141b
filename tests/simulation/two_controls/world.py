"""A service with two controls on one PostgreSQL: one leads, and the other waits to take over.

Wait, take-over, count and end are the real ones, on a server of the simulation (`server`). A control
that is paused, killed or cut off from the server is replaced; one that lost the lead may store nothing more,
and ends within ENDS_S of the moment in which it can know.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import psycopg

from stoker.cli.control import process as control_process
from stoker.cli.control import standby
from stoker.control.errors import ControlError
from stoker.control.plane import Plane
from stoker.control.store import StoreError
from stoker.control.store.database import leadership, writer_lock
from stoker.control.store.database.opening import StoreAway
from stoker.control.store.database.postgres import PostgresDatabase
from stoker.control.store.resources.keys import create_join_token
from tests.simulation.storage import SimCommitter
from tests.simulation.two_controls.server import LOOK_S, AsyncSession, DatabaseServer, LedConn
from tests.simulation.virtual_loop import Process, VirtualLoop
from tests.simulation.world import STOP_S, World

T = TypeVar("T")
URL = "postgresql://stoker@database/stoker"
SILENT_S = 15.0
"""An agent notices within this that the other end of its connection stands still (keepalive of gRPC)."""

ENDS_S = 5.0
AGAIN_S = 1.0
DRAIN_S = 0.25
FOLDER = SimpleNamespace(root=Path("/of-its-own"), control_lock=Path("/of-its-own/lock"))


@asynccontextmanager
async def _no_lock(*_: object) -> AsyncIterator[bool]:
    """Each control has a data folder of its own, on a host of its own."""
    yield False


async def _away(error: psycopg.Error, _: PostgresDatabase) -> StoreError:
    """The server of the simulation refuses nobody: who cannot connect finds it away."""
    return StoreAway(str(error))


@contextmanager
def on_the_server(server: DatabaseServer) -> Iterator[None]:
    """Lets the control's code reach the server of the simulation."""
    driver = SimpleNamespace(
        AsyncConnection=SimpleNamespace(connect=AsyncSession.of(server)),
        **{name: getattr(psycopg, name) for name in ("Error", "OperationalError", "errors")},
    )
    with (
        mock.patch.object(leadership, "psycopg", driver),
        mock.patch.object(writer_lock, "psycopg", driver),
        mock.patch.object(writer_lock, "refused", _away),
        mock.patch.object(standby, "locked_after_wait", _no_lock),
    ):
        yield


class TwoControls(World):
    """`control` is the process that leads, or led last; `plane` is its plane, once it serves."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        super().__init__(seed, loop)
        self.server = DatabaseServer(self.store.writer, lambda: self.witness.settled(False))
        self.running: dict[str, Process] = {}
        self.ends: dict[Process, asyncio.Event] = {}
        """Set where the process answers nobody any more."""
        self.freed_at: dict[Process, float] = {}
        """When nothing kept it from the server any more."""
        self.leaving: Plane | None = None
        """One that accepts no calls any more: they wait for the next control, in the listener's queue."""

    async def start_control(self) -> None:
        for name in ("a", "b"):
            if name not in self.running:
                self._boot(name)
        while self.plane is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    def _boot(self, name: str) -> None:
        process = self.running[name] = Process(f"control {name}")
        self.ends[process] = asyncio.Event()
        self.witness.note("{} waits", process.name)
        self._watch(self.loop.start(process, self._live(name, process)), process)

    async def _live(self, name: str, process: Process) -> None:
        database = PostgresDatabase(URL, alone=True)

        def opened() -> Any:
            return LedConn(self.server, database, self.witness.fail)

        try:
            async with AsyncExitStack() as stack:
                conn = await standby.take_lead(stack, FOLDER, URL, opened, standby=True)  # type: ignore[arg-type]
                commits = self._takes_over(process, conn)
                counting = asyncio.create_task(database.keep_lead())
                stack.callback(counting.cancel)
                await self._serve(process, commits, SimpleNamespace(database=database))
        except (ControlError, StoreError) as error:
            self.witness.note("{} ends: {}", process.name, error)
        self.context.copy().run(self._over, process)

    def _takes_over(self, process: Process, conn: Any) -> SimCommitter:
        self.witness.note("{} leads", process.name)
        before, self.control, self.plane = self.control, process, None
        if before is not None:
            self.ends[before].set()
            self.crashes += 1  # a webhook that it was sending is sent again
            self.loop.create_task(self._ends_if_replaced(before), context=self.context.copy())
        self.died = self.ends[process]
        self.rough_until = self.loop.time()
        for host in self.hosts:
            self.witness.unwell(host.name)
        return SimCommitter(
            conn,
            self.disk,
            settled=self._settled,
            before=lambda: self._dies(process, self.kill_before_commit),
            after=lambda: self._dies(process, self.kill_after_commit),
        )

    def _settled(self, counts: bool) -> None:
        """What failed here says nothing of what another control has under way."""
        if counts or self.server.begun_by is None:
            self.witness.settled(counts)

    async def _serve(self, process: Process, commits: SimCommitter, store: Any) -> None:
        if not self.token:
            _, self.token = await commits.commit(lambda c: create_join_token(c, name="sim", now=0.0))
        plane = self.make_plane(commits)
        await plane.start(self.endpoints)
        if process is self.control:
            self.plane = plane
        running = asyncio.create_task(plane.run())
        try:
            await control_process._watch_database(store)
        finally:
            running.cancel()

    def _over(self, process: Process, after_s: float = AGAIN_S, *, quietly: bool = False) -> None:
        """Nothing of the process runs on; it is started again. `quietly`: its host lost its power, and
        neither the server nor an agent learns of it."""
        if process.dead:
            return
        self.loop.kill(process)
        self.ends[process].set()
        if not quietly:
            self.server.end_all(process)
        if process is self.control:
            self.plane = None
            for host in list(self.network.links):
                self.network.sever(host, *(() if quietly else ("agent",)))
        (name,) = (name for name, one in self.running.items() if one is process)
        self.loop.call_later(after_s, self._boot, name, context=self.context.copy())

    async def call(self, ask: Callable[[Plane], Coroutine[Any, Any, T]], wait_s: float = 0.0) -> T:
        while self.plane is not None and self.plane is self.leaving:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        return await super().call(ask, wait_s)

    # -- what the faults do

    def _dies(self, process: Process, chance: float) -> bool:
        if not process.dead and chance and self.rng.random() < chance:
            self.context.copy().run(self._over, process, self.rng.choice([0.1, 0.5, 3.0]))
        return process.dead

    def kill_control(self, *, after_s: float = 0.5, quietly: bool = False) -> None:
        if self.control is None or self.control.dead:
            return
        self.witness.note("{} is killed", self.control.name)
        self.crashes += 1
        self._over(self.control, after_s, quietly=quietly)

    async def stop_control(self, after_s: float) -> None:
        process, plane = self.control, self.plane
        if process is None or process.dead or plane is None:
            return
        self.witness.note("{} is stopped", process.name)
        plane.end_waits()
        self.leaving = plane
        await asyncio.sleep(self.rng.random() * DRAIN_S)
        if not process.dead:
            await asyncio.wait([self.loop.start(process, plane.stop())], timeout=STOP_S)
            self._over(process, after_s)

    async def freeze_control(self, seconds: float) -> None:
        process = self.control
        if process is None or process.dead:
            return
        self.witness.note("{} is frozen for {} s", process.name, seconds)
        self.thawed_at = max(self.thawed_at, self.loop.time() + seconds)
        self.loop.freeze(process)
        links = [link for links in self.network.links.values() for link in links]
        await asyncio.sleep(min(seconds, SILENT_S))
        if seconds >= SILENT_S:
            for link in links:
                link.sever("agent")
            await asyncio.sleep(seconds - SILENT_S)
        self.loop.thaw(process)
        self.rough_until = self.loop.time()
        for host in self.hosts:
            self.witness.unwell(host.name)
        await self._ends_if_replaced(process)

    async def cut_off_control(self, seconds: float) -> None:
        """Its host does not reach the server, and the server holds its sessions."""
        process = self.control
        if process is None or process.dead:
            return
        self.witness.note("{} is cut off from the database for {} s", process.name, seconds)
        self.server.cut_off.add(process)
        await asyncio.sleep(seconds)
        self.server.cut_off.discard(process)
        await self._ends_if_replaced(process)

    async def restart_server(self, seconds: float) -> None:
        self.witness.note("the database is away for {} s", seconds)
        self.server.restarts()
        await asyncio.sleep(seconds)
        self.server.is_back()

    async def _ends_if_replaced(self, process: Process) -> None:
        """A control that lost its lead must find it, and end, where nothing else kept it from the server."""
        self.freed_at[process] = self.loop.time()
        if process is self.control:
            return
        await asyncio.sleep(ENDS_S)
        held_up = self.loop.is_frozen(process) or self.server.is_away_from(process)
        freed_at = max(self.freed_at[process], self.server.back_at)
        if not process.dead and not held_up and self.loop.time() - freed_at >= ENDS_S:
            self.witness.fail(f"{process.name} lost the lead and was still there {ENDS_S:g} s later")
