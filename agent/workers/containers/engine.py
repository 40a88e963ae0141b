"""Calls the container engine of this host, over the Engine API (of dockerd, or of podman's compatible
socket).

    loop --call(work)--> a few threads --HTTP--> engine          each call has a time limit
    loop <-- pipe ------ one thread for each container: its output, then how it ended

The `docker` package blocks, so it is called on threads only, and only modules of this folder import it. If
the engine refuses a call, an EngineError carries the engine's message.

An engine may stop and start again: dockerd stops its containers with it, podman leaves them running. A
container that could not be removed is *doomed*: it is removed later, and until then no other container is
created on a GPU that it may hold. If the engine did not answer a request to create a container, it may still
create it later: such a container is a *stray*. It is never started, and is removed once it exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stoker.agent.host.own_network import OwnNetwork
from stoker.agent.workers.containers.errors import EngineError, NotThere, Unanswered, readable_errors
from stoker.agent.workers.containers.oom import counter, kills
from stoker.agent.workers.containers.plan import (
    AGENT_LABEL,
    POD_LABEL,
    ContainerExit,
    ContainerPlan,
    EngineFacts,
    with_user_of,
)
from stoker.agent.workers.containers.probe import mount_problem
from stoker.agent.workers.containers.pull import PullFailed, pull
from stoker.agent.workers.containers.requests import docker_request, podman_request
from stoker.outbound.run_in_thread import run_in_thread
from stoker.wire.messages import RegistryAuth

if TYPE_CHECKING:
    from docker import APIClient

log = logging.getLogger(__name__)

T = TypeVar("T")
_GPU = re.compile(r"nvidia\d+")
"""The device node of one GPU. A slice of a GPU comes with the node of the whole GPU, too."""

CALL_S = 60
SWEEP_S = 5.0

STRAY_S = 900.0
"""How long the agent looks for a stray container. After that, a later agent finds it by its label."""

CALLS = 4
"""The most calls at once. Signals are not counted, so that none waits while containers are created."""

LIBPOD = "v4.0.0/libpod"
NO_INIT = re.compile("container-init binary|lookup init binary")
"""Podman's error for a missing init: the first form up to version 4.7 and for a configured path, the second
if podman searches itself."""

INITS = (
    None,
    "/usr/bin/catatonit",
    "/usr/bin/tini-static",
    "/usr/bin/docker-init",
    "/usr/libexec/docker/docker-init",
)
"""The inits that are tried with podman, in this order; None is the one that podman is configured with. All
are static programs, because an image may have no libraries."""


class ContainerEngine:
    """While the host has no engine, `facts.name` is empty and no other method may be called."""

    def __init__(self, client: APIClient | None, facts: EngineFacts) -> None:
        self.facts = facts
        self._client = client
        self._init: str | None = INITS[0]
        self._devices: dict[str, tuple[str, ...]] = {}  # by the id of a container that this agent created
        self._doomed: set[str] = set()
        self._strays: dict[str, float] = {}  # by name: until when the agent looks for it
        self._removing_doomed = asyncio.Lock()
        self._sweeping: asyncio.Task[None] | None = None
        self._calls = asyncio.Semaphore(CALLS)
        self._pulls: dict[tuple[str, RegistryAuth | None], asyncio.Future[None]] = {}

    @property
    def client(self) -> APIClient:
        assert self._client is not None
        return self._client

    def adopt(self, found: ContainerEngine) -> None:
        """Takes over the client of `found`, where there was no engine before. `found` must not be used any
        more."""
        self._client, self.facts = found._client, found.facts
        self._doomed |= found._doomed
        if found._sweeping is not None:
            found._sweeping.cancel()
            self._sweep_soon()

    async def stop(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    async def call(self, work: Callable[[], T]) -> T:
        """Runs `work`, which uses the client, in a thread. Raises EngineError, NotThere."""
        async with self._calls:
            return await self._call_in_thread(work)

    def _call_in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        def call() -> T:
            with readable_errors():
                return work()

        return run_in_thread("call to the container engine", call)

    # -- images

    async def image(self, name: str) -> dict[str, Any]:
        """Returns Id and RepoDigests of an image that the engine has. Raises NotThere."""
        client: Any = self.client  # the method has no type hints
        found: dict[str, Any] = await self.call(lambda: client.inspect_image(name))
        return found

    async def pull(self, name: str, auth: RegistryAuth | None = None) -> None:
        """Pulls an image in a thread of its own, which may take minutes; the agent's end does not wait for
        it.

        The pull goes on if the caller is cancelled. Concurrent pulls of the same image share one."""
        key = name, auth
        if key not in self._pulls:
            pulling = self._pulls[key] = run_in_thread(f"pull {name}", lambda: self._pull(name, auth))
            pulling.add_done_callback(lambda done: self._pulled(key, done))
        await asyncio.shield(self._pulls[key])

    def _pulled(self, key: tuple[str, RegistryAuth | None], done: asyncio.Future[None]) -> None:
        del self._pulls[key]
        done.exception()  # marks it as retrieved, in case nothing waits for it any more

    def _pull(self, name: str, auth: RegistryAuth | None) -> None:
        try:
            with readable_errors():
                pull(self.client, name, auth, stores_in_silence=self.facts.name == "podman")
        except PullFailed as refused:
            raise EngineError(str(refused)) from None

    # -- containers

    async def create(self, plan: ContainerPlan, name: str) -> str:
        await self.free_devices(plan.devices)
        try:
            container = await self.call(lambda: self._create(plan, name))
        except Unanswered:
            self._strays[name] = asyncio.get_running_loop().time() + STRAY_S
            self._sweep_soon()
            raise
        self._devices[container] = plan.devices
        return container

    async def free_devices(self, devices: Collection[str]) -> None:
        """Removes the doomed containers that may hold any of these devices (CDI names). Raises EngineError if
        one cannot be removed."""
        while (container := self._doomed_on(devices)) is not None:
            async with self._removing_doomed:
                if container not in self._doomed:
                    continue  # another caller removed it meanwhile
                try:
                    await self.remove(container)
                except EngineError as error:
                    raise EngineError(f"an earlier container that may have its GPU stays: {error}") from None

    def _doomed_on(self, devices: Collection[str]) -> str | None:
        """Returns a doomed container that may hold one of `devices`. A container that an earlier agent left
        may hold any."""
        if not devices:
            return None
        return next(
            (one for one in self._doomed if not {*self._devices.get(one, devices)}.isdisjoint(devices)), None
        )

    def _create(self, plan: ContainerPlan, name: str) -> str:
        client: Any = self.client  # its methods have no type hints
        if plan.unless_named:
            plan = with_user_of(str(client.inspect_image(plan.image)["Config"].get("User") or ""), plan)
        if self.facts.name != "podman":
            return str(client.create_container_from_config(docker_request(plan), name)["Id"])
        answer: Any = None
        for init in dict.fromkeys((self._init, *INITS)):
            request = podman_request(plan, name, init)
            answer = client.post(
                f"{client.base_url}/{LIBPOD}/containers/create", json=request, timeout=CALL_S
            )
            if not NO_INIT.search(answer.text):
                self._init = init  # several threads may set it at once
                break
        client._raise_for_status(answer)
        return str(answer.json()["Id"])

    async def start(self, container: str, log_write: int) -> asyncio.Future[ContainerExit]:
        """Starts a container and returns a future of its end, or of an EngineError if the engine is lost.

        The container's output goes to the pipe `log_write`, which this method closes, even if it raises."""
        try:
            stream = await self.call(lambda: self.client.attach(container, stream=True))
        except BaseException:
            os.close(log_write)
            raise
        try:
            oom_counter = await self.call(lambda: self._start(container))
        except BaseException:
            await self.call(lambda: _close(stream))
            os.close(log_write)
            raise

        def follow() -> ContainerExit:
            try:
                with readable_errors():
                    _copy(stream, log_write)
                    return self._exit_of(container, kills(oom_counter))
            finally:
                os.close(log_write)

        return run_in_thread(f"container {container[:12]}", follow)

    def _start(self, container: str) -> Path | None:
        """Returns the file that counts its out-of-memory kills."""
        self.client.start(container)
        return counter(self._pid(container))

    def _pid(self, container: str) -> int:
        """Returns the host's process id of its process 1, or 0 if it has ended."""
        return int(self.client.inspect_container(container)["State"]["Pid"])

    def _exit_of(self, container: str, kills: int | None) -> ContainerExit:
        code = int((answer := self.client.wait(container, timeout=None))["StatusCode"])
        if code < 0:
            raise EngineError(f"the engine does not know how it ended: {answer.get('Error')}")
        state = self.client.inspect_container(container)["State"]
        return ContainerExit(code, bool(state.get("OOMKilled") or kills), str(state.get("Error") or ""))

    async def missing_gpu(self, container: str, wanted: int = 1) -> str | None:
        """Returns why a running container lacks its GPUs, or None if it has them or has ended. Looks into its
        /dev, because an engine may silently leave out a device that it does not know."""

        def look() -> str | None:
            if not (pid := self._pid(container)):
                return None
            try:
                found = [name for name in os.listdir(f"/proc/{pid}/root/dev") if _GPU.fullmatch(name)]
            except OSError as error:
                need = "the agent's own container needs --pid host and --cap-add SYS_PTRACE"
                return f"its devices cannot be inspected ({error.strerror}): {need}"
            if len(found) >= wanted:
                return None
            return "it got no GPU" if not found else f"it got {len(found)} of {wanted} GPUs"

        return await self.call(look)

    async def mount_problem(self, agent: str, inside: Path, outside: Path) -> str | None:
        """Returns why the engine does not see the agent's folder `inside` as `outside`, or None if it
        does."""
        return await self.call(lambda: mount_problem(self.client, {AGENT_LABEL: agent}, inside, outside))

    async def network(self, container: str) -> OwnNetwork:
        """Returns the network of a running container. Raises EngineError, NoEntry."""
        return await self.call(lambda: OwnNetwork(self._pid(container)))

    async def signal(self, container: str, name: str) -> None:
        """Sends a signal. Does nothing if the container has ended."""
        with contextlib.suppress(EngineError):
            await self._call_in_thread(lambda: self.client.kill(container, name))

    async def remove(self, container: str) -> None:
        """Removes a container. If that fails, it is doomed, and EngineError is raised."""
        try:
            await self.call(lambda: self._remove(container))
        except Exception:
            self._doomed.add(container)
            self._sweep_soon()
            raise
        self._doomed.discard(container)
        self._devices.pop(container, None)

    def _remove(self, container: str) -> bool:
        """Returns whether it existed."""
        client: Any = self.client  # podman's own API has no type hints
        try:
            with readable_errors():
                if self.facts.name != "podman":
                    client.remove_container(container, v=True, force=True)
                    return True
                at_once = {
                    "force": True,
                    "volumes": True,
                    "timeout": 0,
                }  # else podman waits 10 s after SIGTERM
                path = f"{client.base_url}/{LIBPOD}/containers/{container}"
                client._raise_for_status(client.delete(path, params=at_once, timeout=CALL_S))
                return True
        except NotThere:
            return False

    def _sweep_soon(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep(), name="sweep of containers")

    async def _sweep(self) -> None:
        """Removes doomed containers and strays, even if no other container is created for a long time."""
        while self._doomed or self._strays:
            await asyncio.sleep(SWEEP_S)
            for container in tuple(self._doomed):
                async with self._removing_doomed:
                    with contextlib.suppress(Exception):
                        await self.remove(container)
            for name in tuple(self._strays):
                await self._remove_stray(name)
        self._sweeping = None

    async def _remove_stray(self, name: str) -> None:
        over = asyncio.get_running_loop().time() > self._strays[name]
        try:
            found = await self.call(lambda: self._remove(name))
        except EngineError:
            found = False
        if found:
            log.warning("removed %s, which the engine created after the agent had given it up", name)
        if found or over:
            del self._strays[name]

    async def remove_all(self, agent: str) -> int:
        """Removes the workers' containers that an earlier agent of this data folder left, and returns their
        number. Pods outlive their agent and stay. If one cannot be removed, raises EngineError after the
        others."""
        label = {"label": f"{AGENT_LABEL}={agent}"}
        listed = await self.call(lambda: self.client.containers(all=True, filters=label))
        found = [one for one in listed if POD_LABEL not in (one["Labels"] or {})]
        removed = (self.remove(one["Id"]) for one in found)
        for error in await asyncio.gather(*removed, return_exceptions=True):
            if error is not None:
                raise error
        return len(found)


def _copy(stream: Any, log_write: int) -> None:
    """Copies the output to the pipe. Blocks while the agent does not read, so the container blocks, too."""
    try:
        for data in stream:
            view = memoryview(data)
            while view:
                view = view[os.write(log_write, view) :]
    except BrokenPipeError:
        pass
    finally:
        _close(stream)


def _close(stream: Any) -> None:
    """Closes the response as well: the stream's `close` closes only the socket."""
    stream.close()
    stream._response.close()
