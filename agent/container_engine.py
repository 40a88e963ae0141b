"""The container engine of this host, over the Engine API (dockerd, or podman's socket of the same API).

    loop --call(work)--> a few threads --HTTP--> engine          each call has an end
    loop <-- pipe ------ a thread of its own for each container: what it prints, then how it ended

The `docker` package blocks, so it is called on threads only, and nothing but this module imports it. An
engine's refusal is an EngineError in the engine's own words. Registry credentials are those of the agent's
own docker configuration (DOCKER_CONFIG, or ~/.docker/config.json).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stoker.agent.container_plan import AGENT_LABEL, DOCKER_WITH_CDI, Ended, Engine, major

if TYPE_CHECKING:
    from docker import APIClient

log = logging.getLogger(__name__)

T = TypeVar("T")
CALL_S = 60
OPEN_S = 5
"""An engine that hangs must not keep the agent from its plain processes."""

THREADS = 4


class EngineError(Exception):
    """The engine refused, or cannot be reached; the text is a sentence."""


class NoSuchImage(EngineError):
    """The engine has no image of that name or id."""


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
    return [f"unix://{path}" for path in usual if Path(path).is_socket()]


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

    with _in_words():
        client = APIClient(address, version="auto", timeout=OPEN_S, num_pools=THREADS)
        engine = _facts(client)
        client.timeout = CALL_S
        return client, engine


def _facts(client: APIClient) -> Engine:
    told = client.version()
    parts = {part["Name"]: part["Version"] for part in told.get("Components") or []}
    if (podman := parts.get("Podman Engine")) is not None:
        return Engine("podman", podman)
    version = str(told["Version"])
    cdi = major(version) >= DOCKER_WITH_CDI and bool(client.info().get("CDISpecDirs"))
    return Engine("docker", version, cdi)


@contextlib.contextmanager
def _in_words() -> Any:
    from docker.errors import APIError, DockerException, NotFound
    from requests.exceptions import RequestException

    try:
        yield
    except APIError as error:
        kind = NoSuchImage if isinstance(error, NotFound) else EngineError
        raise kind(str(error.explanation or error)) from None
    except (DockerException, RequestException, OSError) as error:
        raise EngineError(f"the container engine cannot be reached: {error}") from None


class ContainerEngine:
    """`facts.name` is empty where there is none; nothing may be asked of it then."""

    def __init__(self, client: APIClient | None, engine: Engine) -> None:
        self.facts = engine
        self._client = client
        self._threads = ThreadPoolExecutor(THREADS, "containers")

    @property
    def client(self) -> APIClient:
        assert self._client is not None
        return self._client

    def close(self) -> None:
        self._threads.shutdown()
        if self._client is not None:
            self._client.close()

    async def _call(self, work: Callable[[], T]) -> T:
        def told() -> T:
            with _in_words():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, told)

    # -- images

    async def image(self, name: str) -> dict[str, Any]:
        """Id and RepoDigests of an image that is here. Raises NoSuchImage."""
        client: Any = self.client  # this call of it has no types
        found: dict[str, Any] = await self._call(lambda: client.inspect_image(name))
        return found

    async def pull(self, name: str) -> None:
        """On a thread of its own: it may take minutes, and nothing waits for it at the agent's end."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            error: Exception | None = None
            try:
                with _in_words():
                    self._pull(name)
            except EngineError as refused:
                error = refused
            with contextlib.suppress(RuntimeError):  # the loop has gone
                loop.call_soon_threadsafe(_settle, done, None, error)

        threading.Thread(target=work, name=f"pull {name}", daemon=True).start()
        await done

    def _pull(self, name: str) -> None:
        for step in self.client.pull(name, stream=True, decode=True):
            if "error" in step:
                raise EngineError(str(step["error"]))

    # -- containers

    async def create(self, request: Mapping[str, Any], name: str) -> str:
        client: Any = self.client  # this call of it has no types
        made = await self._call(lambda: client.create_container_from_config(dict(request), name))
        return str(made["Id"])

    async def start(self, container: str, log_start: int) -> asyncio.Future[Ended]:
        """Once it runs. What it prints goes to the pipe `log_start`, which is closed here; the answer is done
        when it has ended, and holds an EngineError when the engine went."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ended] = loop.create_future()
        try:
            stream = await self._call(lambda: self.client.attach(container, stream=True))
        except BaseException:
            os.close(log_start)
            raise

        def follow() -> None:
            result, error = None, None
            try:
                with _in_words():
                    _copy(stream, log_start)
                    result = self._end_of(container)
            except EngineError as gone:
                error = gone
            finally:
                os.close(log_start)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, ended, result, error)

        try:
            await self._call(lambda: self.client.start(container))
        except BaseException:
            await self._call(lambda: _close(stream))
            os.close(log_start)
            raise
        threading.Thread(target=follow, name=f"container {container[:12]}", daemon=True).start()
        return ended

    def _end_of(self, container: str) -> Ended:
        code = int(self.client.wait(container, timeout=None)["StatusCode"])
        state = self.client.inspect_container(container)["State"]
        return Ended(code, bool(state.get("OOMKilled")), str(state.get("Error") or ""))

    async def missing_gpu(self, container: str) -> str | None:
        """Why a running container has no GPU; None when it has one, or has ended. Its /dev is looked at, for
        an engine may leave out what it does not know and say nothing."""

        def look() -> str | None:
            pid = self.client.inspect_container(container)["State"]["Pid"]
            if not pid:
                return None
            try:
                found = os.listdir(f"/proc/{pid}/root/dev")
            except OSError as error:
                return f"its devices cannot be looked at ({error.strerror}): the agent needs the host's pids"
            return None if any(name.startswith("nvidia") for name in found) else "it got no GPU"

        return await self._call(look)

    async def signal(self, container: str, name: str) -> None:
        """Nothing when it has ended."""
        with contextlib.suppress(EngineError):
            await self._call(lambda: self.client.kill(container, name))

    async def remove(self, container: str) -> None:
        with contextlib.suppress(NoSuchImage):
            await self._call(lambda: self.client.remove_container(container, v=True, force=True))

    async def remove_all(self, agent: str) -> int:
        """What an earlier agent of this data folder left; how many there were."""
        label = {"label": f"{AGENT_LABEL}={agent}"}
        found = await self._call(lambda: self.client.containers(all=True, filters=label))
        for one in found:
            await self.remove(one["Id"])
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


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
