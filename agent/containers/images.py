"""Which image a container is made of: the one that its name meant when it was first used here.

    endpoint version and name, first seen --(pull, unless it is here)--> id and digest, kept in a file
                              seen before --> that id; pulled by its digest when it has gone from this node

So every worker of an endpoint version runs the same image, whatever becomes of the tag, and so does a pod
until it is reset. A new version asks anew, but what is on the node already is not pulled again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.agent.container_engine import ContainerEngine
from stoker.agent.container_errors import EngineError, NotThere
from stoker.wire.messages import RegistryAuth, WorkerSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """An image, for one version of its `owner`: "endpoint e1", "pod p1"."""

    owner: str
    version: int
    image: str
    registry: RegistryAuth | None

    @property
    def key(self) -> str:
        return f"{self.owner.removeprefix('endpoint ')} {self.version} {self.image}"


def wanted_by(spec: WorkerSpec) -> Wanted:
    return Wanted(f"endpoint {spec.endpoint}", spec.version, spec.image, spec.registry)


class Images:
    """`file` is the agent's own. Without it, or with a torn one, everything is first seen again."""

    def __init__(self, engine: ContainerEngine, file: Path) -> None:
        self._engine = engine
        self._file = file
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._pins = _load(file)

    async def resolve(self, wanted: Wanted) -> str:
        """The id of the image. Raises EngineError."""
        async with self._locks[wanted.image]:
            if (pin := self._pins.get(wanted.key)) is not None:
                return await self._pinned(wanted, pin)
            found = await self._here_or_pulled(wanted.image, wanted)
            self._keep(wanted.key, {"id": found["Id"], "digest": _digest(wanted.image, found)})
            return str(found["Id"])

    async def _pinned(self, wanted: Wanted, pin: dict[str, str]) -> str:
        try:
            return str((await self._engine.image(pin["id"]))["Id"])
        except NotThere:
            if not pin["digest"]:
                raise EngineError(
                    f"image {wanted.image} of {wanted.owner} version {wanted.version} was"
                    f" {pin['id'][:19]} on this node; that has gone, and no registry knows it"
                ) from None
        return str((await self._here_or_pulled(pin["digest"], wanted))["Id"])

    async def _here_or_pulled(self, name: str, wanted: Wanted) -> dict[str, Any]:
        try:
            return await self._engine.image(name)
        except NotThere:
            log.info("pulling image %s", name)
        try:
            await self._engine.pull(name, wanted.registry)
            return await self._engine.image(name)
        except EngineError as error:
            raise EngineError(f"image {wanted.image} cannot be pulled: {error}") from None

    def forget(self, owner: str) -> None:
        """All versions of a pod that has gone."""
        for key in [key for key in self._pins if key.startswith(f"{owner} ")]:
            del self._pins[key]
        self._save()

    def _keep(self, key: str, pin: dict[str, str]) -> None:
        self._pins[key] = pin
        self._save()

    def _save(self) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_text(json.dumps(self._pins, indent=1), encoding="utf-8")
            new.replace(self._file)
        except OSError as error:
            log.error("which images were pinned cannot be written, it is in memory only: %s", error)


def _digest(image: str, found: dict[str, Any]) -> str:
    """The name by which its registry knows it for ever; "" where none does. An image that came from several
    registries has one of each, and the credentials are for this one. Where it names no registry, the engine
    may have found it at any that it asks for such images, and at the Docker Hub first."""
    names: list[str] = found.get("RepoDigests") or []
    above, slash, last = image.partition("@")[0].rpartition("/")
    repository = f"{above}{slash}{last.partition(':')[0]}"
    ours = [name for name in names if _on_hub(name.partition("@")[0]) == _on_hub(repository)]
    ours += [name for name in names if name.partition("@")[0].endswith(f"/{repository}")]
    return (ours or names or [""])[0]


def _on_hub(repository: str) -> str:
    """As short as Docker writes one of its own registry; another's as it is."""
    return repository.removeprefix("docker.io/").removeprefix("library/")


def _load(file: Path) -> dict[str, dict[str, str]]:
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
        return {key: {"id": pin["id"], "digest": pin["digest"]} for key, pin in loaded.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
