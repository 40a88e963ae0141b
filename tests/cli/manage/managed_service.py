"""The whole API on loopback, over a plane in memory with one node that a script plays."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from stoker.control.config.settings import PlaneSettings
from stoker.control.http.server.server import serve_http
from stoker.wire.messages import Device
from stoker.wire.messages.weights import HELD, SIZES
from stoker.wire.streams import StreamEnded
from tests.control.http.management.managed import managed
from tests.control.plane_world import NAMESPACE, endpoint
from tests.control.scripted_agent import ScriptedAgent

GPU = Device("GPU-0", "gpu", "NVIDIA GeForce RTX 4090", 0, memory_total=24 << 30)
FACTS = {"containers": "docker 28.0.1", "containers_cdi": "yes", "vcpus": "16", "data_center": "EU-RO-1"}
FACTS |= {HELD: "flux-1-dev@c0ffee, ink@beef", SIZES: "23802932552, 171969"}
NODE = "node-1"


@dataclass
class ManagedService:
    url: str = ""
    key: str = ""


@contextmanager
def served() -> Iterator[ManagedService]:
    """A loop in a thread of its own, as commands hold up theirs."""
    service, ready, over = ManagedService(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    broken: list[BaseException] = []

    def work() -> None:
        try:
            loop.run_until_complete(_serve(service, ready, over))
        except BaseException as error:
            broken.append(error)
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=work, name="the service")
    thread.start()
    ready.wait()
    try:
        if not broken:
            yield service
            loop.call_soon_threadsafe(over.set)
    finally:
        thread.join()
    if broken:
        raise broken[0]


async def _serve(service: ManagedService, ready: threading.Event, over: asyncio.Event) -> None:
    settings = PlaneSettings(network_namespace=NAMESPACE, aliases={"say": "echo"})
    async with managed(endpoint(workers_max=0), settings=settings) as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = api.world.agent(node=NODE)
        await agent.connect(tasks, devices=(GPU,), facts=FACTS)
        beating = tasks.create_task(_beats(agent))
        async with await serve_http(api.app, "127.0.0.1", 0) as http:
            service.url, service.key = http.url, api.world.key
            ready.set()
            await over.wait()
        beating.cancel()
        agent.stream.end("the test is over")


async def _beats(agent: ScriptedAgent) -> None:
    """However long the tests take, control does not count it as lost."""
    with suppress(StreamEnded):
        for number in itertools.count(1):
            await agent.beat(number)
            await agent.listen(5.0)
