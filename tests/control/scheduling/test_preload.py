"""What an endpoint preloads: from its configuration, through the store, to the agent of its workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import to_builtins

from stoker.control.config.config import ConfigError, load_config, to_endpoints
from stoker.control.rules.types import EndpointVersion
from stoker.control.store.resources.endpoints import _open
from tests.control.plane_world import endpoint, story, world

NAMES = ("torch", "diffusers.FluxPipeline")


def write(folder: Path, preload: str) -> Path:
    (folder / "echo.py").touch()
    file = folder / "stoker.toml"
    file.write_text(
        'local_roots = ["."]\n[[endpoints]]\nid = "echo"\nimageName = "local:echo.py:handler"\n'
        f"preload = {preload}\n"
    )
    return file


def test_it_is_configured_by_name(tmp_path: Path) -> None:
    (declared,) = to_endpoints(load_config(write(tmp_path, json.dumps(NAMES))))
    assert declared.run.preload == NAMES


@pytest.mark.parametrize(
    "name", ["", "torch nn", "../torch", "torch.", ".torch", "torch;os", "a-b", "x" * 201]
)
def test_what_is_no_module_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"endpoints\[0\]\.preload\[1\]"):
        load_config(write(tmp_path, json.dumps(["torch", name])))


def test_a_version_that_was_stored_before_there_were_any_has_none() -> None:
    fields = to_builtins(EndpointVersion("/h.py:handler", preload=NAMES))
    assert fields.pop("preload") == NAMES

    class Sealed:
        class secrets:
            open = staticmethod(lambda sealed: sealed)

    opened = _open(Sealed, json.dumps(fields).encode())  # type: ignore[arg-type]
    assert opened == EndpointVersion("/h.py:handler")


@story
async def test_its_agent_is_notified() -> None:
    run = EndpointVersion("/h/echo.py:handler", preload=NAMES)
    async with world(endpoint(workers_min=1, run=run)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        (worker,) = await agent.ready_workers()
        assert agent.specs[worker].preload == NAMES
