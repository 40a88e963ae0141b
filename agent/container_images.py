"""Which image a worker's container is made of: the one that its name meant when it was first used here.

    endpoint version and name, first seen --(pull, unless it is here)--> id and digest, kept in a file
                              seen before --> that id; pulled by its digest when it has gone from this node

So every worker of an endpoint version runs the same image, whatever becomes of the tag. A new version of the
endpoint asks anew, but what is on the node already is not pulled again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from pathlib import Path
from typing import Any

from stoker.agent.container_engine import ContainerEngine, EngineError, NotThere
from stoker.wire.messages import WorkerSpec

log = logging.getLogger(__name__)


class Images:
    """`file` is the agent's own. Without it, or with a torn one, everything is first seen again."""

    def __init__(self, engine: ContainerEngine, file: Path) -> None:
        self._engine = engine
        self._file = file
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._pins = _load(file)

    async def resolve(self, spec: WorkerSpec) -> str:
        """The id of the image. Raises EngineError."""
        async with self._locks[spec.image]:
            key = f"{spec.endpoint} {spec.version} {spec.image}"
            if (pin := self._pins.get(key)) is not None:
                return await self._pinned(spec, pin)
            found = await self._here_or_pulled(spec.image, spec)
            self._keep(key, {"id": found["Id"], "digest": (found.get("RepoDigests") or [""])[0]})
            return str(found["Id"])

    async def _pinned(self, spec: WorkerSpec, pin: dict[str, str]) -> str:
        try:
            return str((await self._engine.image(pin["id"]))["Id"])
        except NotThere:
            if not pin["digest"]:
                raise EngineError(
                    f"image {spec.image} of endpoint {spec.endpoint} version {spec.version} was"
                    f" {pin['id'][:19]} on this node; that has gone, and no registry knows it"
                ) from None
        return str((await self._here_or_pulled(pin["digest"], spec))["Id"])

    async def _here_or_pulled(self, name: str, spec: WorkerSpec) -> dict[str, Any]:
        try:
            return await self._engine.image(name)
        except NotThere:
            log.info("pulling image %s", name)
        try:
            await self._engine.pull(name, spec.registry)
            return await self._engine.image(name)
        except EngineError as error:
            raise EngineError(f"image {spec.image} cannot be pulled: {error}") from None

    def _keep(self, key: str, pin: dict[str, str]) -> None:
        self._pins[key] = pin
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._pins, indent=1), encoding="utf-8")
        new.replace(self._file)


def _load(file: Path) -> dict[str, dict[str, str]]:
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
        return {key: {"id": pin["id"], "digest": pin["digest"]} for key, pin in loaded.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
