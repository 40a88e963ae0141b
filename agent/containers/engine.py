"""The container engine of this host, over the Engine API (dockerd, or podman's socket of the same API).

    loop --call(work)--> a few threads --HTTP--> engine          each call has an end
    loop <-- pipe ------ a thread of its own for each container: what it prints, then how it ended

The `docker` package blocks, so it is called on threads only, and nothing but this module and
its neighbours import it. An engine's refusal is an EngineError in the engine's own words.

An engine may go and come back (dockerd takes its containers along, podman leaves them running). What could
not be removed meanwhile is *doomed*: until it is gone no other is made on a GPU that it may have, and what
needs none of its GPUs does not wait for it. A container whose creation was given up may still be made, later:
it is *stray* then, never started, and is removed by its name once it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stoker.agent.beside import beside
from stoker.agent.container_errors import EngineError, NotThere, Unanswered, in_words
from stoker.agent.container_oom import counter, kills
from stoker.agent.container_plan import (
    AGENT_LABEL,
    DOCKER_WITH_CDI,
    POD_LABEL,
    PODMAN_WITH_CDI,
    Ended,
    Engine,
    Plan,
    major,
)
from stoker.agent.container_probe import unseen
from stoker.agent.container_pull import PullFailed, pull
from stoker.agent.container_requests import docker_request, podman_request
from stoker.wire.messages import RegistryAuth

if TYPE_CHECKING:
    from docker import APIClient

log = logging.getLogger(__name__)

T = TypeVar("T")
_GPU = re.compile(r"nvidia\d+")
"""The device node of one GPU. A slice of one comes with its whole GPU's, too."""

CALL_S = 60
OPEN_S = 5
"""An engine that hangs must not keep the agent from its plain processes."""

SWEEP_S = 5.0

STRAY_S = 900.0
"""How long one that was given up is looked for; a later agent finds it by its label."""

CALLS = 4
"""At once, but for signals: none waits for containers that are being made."""


LIBPOD = "v4.0.0/libpod"
NO_INIT = re.compile("container-init binary|lookup init binary")
"""Podman says the first up to 4.7 and of a path that it was given, the second where it looks itself."""

API = "1.41"
"""Of the Engine API, for the one call that asks which there is."""

INITS = (
    None,
    "/usr/bin/catatonit",
    "/usr/bin/tini-static",
    "/usr/bin/docker-init",
    "/usr/libexec/docker/docker-init",
)
"""Where podman is told to look for an init, in turn; None is what it is configured with. All of them need no
library: an image may have none."""


def addresses(environment: Mapping[str, str], uid: int) -> list[str]:
    """Where an engine may listen: what is configured, or else the usual sockets that are there."""
    if given := environment.get("DOCKER_HOST"):
        return [given]
    own = environment.get("XDG_RUNTIME_DIR", f"/run/user/{uid}")
    usual = [
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
        f"{own}/docker.sock",
        f"{own}/podman/podman.sock",
    ]
    return [f"unix://{path}" for path in usual if _is_socket(Path(path))]


def _is_socket(path: Path) -> bool:
    """That may be looked at: /run/podman is root's alone."""
    try:
        return path.is_socket()
    except OSError:
        return False


def connect(where: list[str]) -> ContainerEngine:
    """Blocking. To the first that answers; to none, with the reason."""
    why = "there is no DOCKER_HOST, and no socket of docker or podman"
    for address in where:
        try:
            return ContainerEngine(*_open(address))
        except EngineError as error:
            why = f"{address} does not answer: {error}"
    return ContainerEngine(None, Engine(why=why))


def _open(address: str) -> tuple[APIClient, Engine]:
    from docker import APIClient

    with in_words():
        told = _ping(APIClient(address, version=API, timeout=OPEN_S))
        client = APIClient(address, version=told["Api-Version"], timeout=CALL_S, num_pools=CALLS)
        return client, _facts(client, told.get("Libpod-Api-Version"))


def _ping(client: Any) -> Mapping[str, str]:
    """What it says of itself, at once. To tell its version in full, podman asks the host's package manager:
    that takes a second, or many on a host that has just started."""
    with contextlib.closing(client), client.get(f"{client.base_url}/_ping", timeout=OPEN_S) as answer:
        client._raise_for_status(answer)
        headers: Mapping[str, str] = answer.headers
        return headers


def _facts(client: APIClient, podman: str | None) -> Engine:
    if podman is not None:
        return Engine("podman", podman, major(podman) >= PODMAN_WITH_CDI)
    version = str(client.version()["Version"])
    cdi = major(version) >= DOCKER_WITH_CDI and bool(client.info().get("CDISpecDirs"))
    return Engine("docker", version, cdi)


class ContainerEngine:
    """`facts.name` is empty where there is none (yet); nothing may be asked of it then."""

    def __init__(self, client: APIClient | None, engine: Engine) -> None:
        self.facts = engine
        self._client = client
        self._init: str | None = INITS[0]
        self._devices: dict[str, tuple[str, ...]] = {}  # by container; of those that were made here
        self._doomed: set[str] = set()
        self._strays: dict[str, float] = {}  # by name, and until when each is looked for
        self._removing = asyncio.Lock()  # of what is doomed
        self._sweeping: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(CALLS)
        self._pulls: dict[tuple[str, RegistryAuth | None], asyncio.Future[None]] = {}

    @property
    def client(self) -> APIClient:
        assert self._client is not None
        return self._client

    def become(self, found: ContainerEngine) -> None:
        """What there was none of until now. `found` is not used any more."""
        self._client, self.facts = found._client, found.facts
        self._doomed |= found._doomed
        if found._sweeping is not None:
            found._sweeping.cancel()
            self._sweep_soon()

    async def leave(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    async def call(self, work: Callable[[], T]) -> T:
        """Of the client, on a thread. Raises EngineError, NotThere."""
        async with self._turns:
            return await self._at_once(work)

    def _at_once(self, work: Callable[[], T]) -> asyncio.Future[T]:
        def told() -> T:
            with in_words():
                return work()

        return beside("call to the container engine", told)

    # -- images

    async def image(self, name: str) -> dict[str, Any]:
        """Id and RepoDigests of an image that is here. Raises NotThere."""
        client: Any = self.client  # this call of it has no types
        found: dict[str, Any] = await self.call(lambda: client.inspect_image(name))
        return found

    async def pull(self, name: str, auth: RegistryAuth | None = None) -> None:
        """On a thread of its own: it may take minutes, and nothing waits for it at the agent's end. It goes
        on when nobody waits any more, and whoever asks for the same meanwhile waits for this one."""
        asked = name, auth
        if asked not in self._pulls:
            pulling = self._pulls[asked] = beside(f"pull {name}", lambda: self._pull(name, auth))
            pulling.add_done_callback(lambda done: self._pulled(asked, done))
        await asyncio.shield(self._pulls[asked])

    def _pulled(self, asked: tuple[str, RegistryAuth | None], done: asyncio.Future[None]) -> None:
        del self._pulls[asked]
        done.exception()  # whoever waits has it; nobody may

    def _pull(self, name: str, auth: RegistryAuth | None) -> None:
        try:
            with in_words():
                pull(self.client, name, auth, stores_in_silence=self.facts.name == "podman")
        except PullFailed as refused:
            raise EngineError(str(refused)) from None

    # -- containers

    async def create(self, plan: Plan, name: str) -> str:
        await self.make_way(plan.devices)
        try:
            container = await self.call(lambda: self._create(plan, name))
        except Unanswered:
            self._strays[name] = asyncio.get_running_loop().time() + STRAY_S
            self._sweep_soon()
            raise
        self._devices[container] = plan.devices
        return container

    async def make_way(self, devices: Collection[str]) -> None:
        """For one that wants these (CDI names). Raises EngineError where a doomed one may still have any."""
        while (container := self._in_the_way(devices)) is not None:
            async with self._removing:
                if container not in self._doomed:
                    continue  # whoever had the turn before was luckier
                try:
                    await self.remove(container)
                except EngineError as error:
                    raise EngineError(f"an earlier container that may have its GPU stays: {error}") from None

    def _in_the_way(self, devices: Collection[str]) -> str | None:
        """What an earlier agent left may have any."""
        if not devices:
            return None
        return next(
            (one for one in self._doomed if not {*self._devices.get(one, devices)}.isdisjoint(devices)), None
        )

    def _create(self, plan: Plan, name: str) -> str:
        client: Any = self.client  # its calls have no types
        if self.facts.name != "podman":
            return str(client.create_container_from_config(docker_request(plan), name)["Id"])
        answer: Any = None
        for init in dict.fromkeys((self._init, *INITS)):
            request = podman_request(plan, name, init)
            answer = client.post(
                f"{client.base_url}/{LIBPOD}/containers/create", json=request, timeout=CALL_S
            )
            if not NO_INIT.search(answer.text):
                self._init = init  # several threads may find it at once
                break
        client._raise_for_status(answer)
        return str(answer.json()["Id"])

    async def start(self, container: str, log_start: int) -> asyncio.Future[Ended]:
        """Once it runs. What it prints goes to the pipe `log_start`, which is closed here; the answer is done
        when it has ended, and holds an EngineError when the engine went."""
        try:
            stream = await self.call(lambda: self.client.attach(container, stream=True))
        except BaseException:
            os.close(log_start)
            raise
        try:
            counting = await self.call(lambda: self._started(container))
        except BaseException:
            await self.call(lambda: _close(stream))
            os.close(log_start)
            raise

        def follow() -> Ended:
            try:
                with in_words():
                    _copy(stream, log_start)
                    return self._end_of(container, kills(counting))
            finally:
                os.close(log_start)

        return beside(f"container {container[:12]}", follow)

    def _started(self, container: str) -> Path | None:
        """What counts its ends for want of memory: the engine may not know, or learn it after the end."""
        self.client.start(container)
        return counter(self._pid(container))

    def _pid(self, container: str) -> int:
        """Of its first process as the host knows it; 0 when it has ended."""
        return int(self.client.inspect_container(container)["State"]["Pid"])

    def _end_of(self, container: str, kills: int | None) -> Ended:
        code = int((told := self.client.wait(container, timeout=None))["StatusCode"])
        if code < 0:
            raise EngineError(f"the engine does not know how it ended: {told.get('Error')}")
        state = self.client.inspect_container(container)["State"]
        return Ended(code, bool(state.get("OOMKilled") or kills), str(state.get("Error") or ""))

    async def missing_gpu(self, container: str, wanted: int = 1) -> str | None:
        """Why a running container lacks its GPUs; None when it has them, or has ended. Its /dev is looked at,
        for an engine may leave out what it does not know and say nothing."""

        def look() -> str | None:
            if not (pid := self._pid(container)):
                return None
            try:
                found = [name for name in os.listdir(f"/proc/{pid}/root/dev") if _GPU.fullmatch(name)]
            except OSError as error:
                need = "the agent's own container needs --pid host and --cap-add SYS_PTRACE"
                return f"its devices cannot be looked at ({error.strerror}): {need}"
            if len(found) >= wanted:
                return None
            return "it got no GPU" if not found else f"it got {len(found)} of {wanted} GPUs"

        return await self.call(look)

    async def unseen(self, agent: str, inside: Path, outside: Path) -> str | None:
        """Why the engine's host does not know the agent's folder `inside` as `outside`; None when it does."""
        return await self.call(lambda: unseen(self.client, {AGENT_LABEL: agent}, inside, outside))

    async def signal(self, container: str, name: str) -> None:
        """Nothing when it has ended."""
        with contextlib.suppress(EngineError):
            await self._at_once(lambda: self.client.kill(container, name))

    async def remove(self, container: str) -> None:
        """Now, or else before the next one is made. Raises EngineError when it is not now."""
        try:
            await self.call(lambda: self._remove(container))
        except Exception:
            self._doomed.add(container)
            self._sweep_soon()
            raise
        self._doomed.discard(container)
        self._devices.pop(container, None)

    def _remove(self, container: str) -> bool:
        """Whether it was there."""
        client: Any = self.client  # podman's own call has no types
        try:
            with in_words():
                if self.facts.name != "podman":
                    client.remove_container(container, v=True, force=True)
                    return True
                at_once = {"force": True, "volumes": True, "timeout": 0}  # else SIGTERM, and ten seconds
                path = f"{client.base_url}/{LIBPOD}/containers/{container}"
                client._raise_for_status(client.delete(path, params=at_once, timeout=CALL_S))
                return True
        except NotThere:
            return False

    def _sweep_soon(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep(), name="sweep of containers")

    async def _sweep(self) -> None:
        """None may be made for a long time: nothing is started where the memory of a GPU is still held."""
        while self._doomed or self._strays:
            await asyncio.sleep(SWEEP_S)
            for container in tuple(self._doomed):
                async with self._removing:
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
            log.warning("removed %s, which the engine made when it was given up already", name)
        if found or over:
            del self._strays[name]

    async def remove_all(self, agent: str) -> int:
        """What an earlier agent of this data folder left; how many there were. Pods outlive their agent.
        Raises EngineError when one cannot be removed now, after the others."""
        label = {"label": f"{AGENT_LABEL}={agent}"}
        listed = await self.call(lambda: self.client.containers(all=True, filters=label))
        found = [one for one in listed if POD_LABEL not in (one["Labels"] or {})]
        removed = (self.remove(one["Id"]) for one in found)
        for error in await asyncio.gather(*removed, return_exceptions=True):
            if error is not None:
                raise error
        return len(found)


def _copy(stream: Any, log_start: int) -> None:
    """Writing waits while the agent does not read; the container then waits, too."""
    try:
        for data in stream:
            view = memoryview(data)
            while view:
                view = view[os.write(log_start, view) :]
    except BrokenPipeError:
        pass
    finally:
        _close(stream)


def _close(stream: Any) -> None:
    """Its own `close` ends the socket, but leaves the response around it open."""
    stream.close()
    stream._response.close()
