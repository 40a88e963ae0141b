"""Pins the image of each endpoint version and pod: the image that its name meant at its first use on this
node.

    first use --(pull, unless the node has it)--> id and digest, saved in a file
    later use --> the same id; pulled by its digest if the node no longer has it

All workers of an endpoint version therefore run the same image, even if the tag moves, and so does a pod
until it is reset. A new version resolves the name again, but an image that the node has is not pulled again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from pathlib import Path
from typing import Any

from msgspec import Struct

from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.errors import EngineError, NotThere
from stoker.wire.messages import RegistryAuth, WorkerSpec

log = logging.getLogger(__name__)


class WantedImage(Struct, frozen=True):
    """The image of one version of its `owner`, such as "endpoint e1" or "pod p1"."""

    owner: str
    version: int
    image: str
    registry: RegistryAuth | None

    @property
    def key(self) -> str:
        return f"{self.owner.removeprefix('endpoint ')} {self.version} {self.image}"


def wanted_by(spec: WorkerSpec) -> WantedImage:
    return WantedImage(f"endpoint {spec.endpoint}", spec.version, spec.image, spec.registry)


class Images:
    """Resolves image names and saves the pins in `file`. If the file is missing or damaged, every use counts
    as the first."""

    def __init__(self, engine: ContainerEngine, file: Path) -> None:
        self._engine = engine
        self._file = file
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._pins = _load(file)

    async def resolve(self, wanted: WantedImage) -> str:
        """Returns the id of the image. Raises EngineError."""
        async with self._locks[wanted.image]:
            if (pin := self._pins.get(wanted.key)) is not None:
                return await self._pinned(wanted, pin)
            found = await self._inspect_or_pull(wanted.image, wanted)
            self._pins[wanted.key] = {"id": found["Id"], "digest": _digest(wanted.image, found)}
            self._save()
            return str(found["Id"])

    async def _pinned(self, wanted: WantedImage, pin: dict[str, str]) -> str:
        try:
            return str((await self._engine.image(pin["id"]))["Id"])
        except NotThere:
            if not pin["digest"]:
                raise EngineError(
                    f"image {wanted.image} of {wanted.owner} version {wanted.version} was"
                    f" {pin['id'][:19]} on this node; that has gone, and no registry has it"
                ) from None
        return str((await self._inspect_or_pull(pin["digest"], wanted))["Id"])

    async def _inspect_or_pull(self, name: str, wanted: WantedImage) -> dict[str, Any]:
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
        """Drops the pins of all versions of `owner`."""
        for key in [key for key in self._pins if key.startswith(f"{owner} ")]:
            del self._pins[key]
        self._save()

    def _save(self) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_text(json.dumps(self._pins, indent=1), encoding="utf-8")
            new.replace(self._file)
        except OSError as error:
            log.error("the pinned images cannot be saved and are kept in memory only: %s", error)


def _digest(image: str, found: dict[str, Any]) -> str:
    """Returns the image's name by digest in its registry, or "" if it came from none.

    An image that came from several registries has a digest name for each; the credentials are for the
    registry that `image` names. If it names none, the engine may have found it in any registry that it
    searches, the Docker Hub first."""
    names: list[str] = found.get("RepoDigests") or []
    above, slash, last = image.partition("@")[0].rpartition("/")
    repository = f"{above}{slash}{last.partition(':')[0]}"
    ours = [name for name in names if _on_hub(name.partition("@")[0]) == _on_hub(repository)]
    ours += [name for name in names if name.partition("@")[0].endswith(f"/{repository}")]
    return (ours or names or [""])[0]


def _on_hub(repository: str) -> str:
    """Shortens a repository of the Docker Hub as docker does; leaves others as they are."""
    return repository.removeprefix("docker.io/").removeprefix("library/")


def _load(file: Path) -> dict[str, dict[str, str]]:
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
        return {key: {"id": pin["id"], "digest": pin["digest"]} for key, pin in loaded.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
