"""Live endpoints as they are provisioned, on a platform of dicts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.cli.dev.live_endpoints.provisioning import Provisioning
from stoker.cli.dev.project import AppEndpoint, load
from stoker.client import BadRequest, NotFound
from stoker.control.rules.limits import DEV_DEPLOYS_AT_ONCE
from tests.cli.dev.written_apps import BALANCED, ONE, app


class Kind:
    """The endpoints or the templates. `most`: how many calls were in progress at once."""

    def __init__(self, letter: str) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.refused: set[str] = set()
        self.most = self._now = 0
        self._ids = (f"{letter}{n}" for n in itertools.count(1))

    async def list(self, **query: Any) -> list[dict[str, Any]]:
        return list(self.there.values())

    async def create(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if fields["name"] in self.refused:
            raise BadRequest("no", 400)
        self._now += 1
        self.most = max(self.most, self._now)
        for _ in range(5):
            await asyncio.sleep(0)
        self._now -= 1
        made = {"id": next(self._ids), **fields}
        made["computeType"] = made.get("computeType") or "CPU"
        self.there[made["id"]] = made
        return made

    async def update(self, member: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        if member not in self.there:
            raise NotFound("no such thing", 404)
        self.there[member] |= {name: value for name, value in fields.items() if value is not None}
        return self.there[member]

    async def delete(self, member: str) -> None:
        if member not in self.there:
            raise NotFound("no such thing", 404)
        del self.there[member]


class Platform:
    def __init__(self, folder: Path) -> None:
        self.endpoints, self.templates = Kind("e"), Kind("t")
        self.manage = SimpleNamespace(endpoints=self.endpoints, templates=self.templates)
        self.said: list[str] = []
        self._folder = folder

    async def provisioning(self) -> Provisioning:
        made = Provisioning(self, self._folder, self.said.append)  # type: ignore[arg-type]
        await made.start()
        return made


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform(tmp_path / "data")


def served(folder: Path, source: str = ONE) -> AppEndpoint:
    (found,) = load(app(folder, one=source)).endpoints
    return found


async def test_three_are_provisioned_at_a_time_and_one_that_fails_keeps_no_other(
    platform: Platform, tmp_path: Path
) -> None:
    app(tmp_path / "app", **{f"f{n}": ONE.replace('"caption"', f'"f{n}"') for n in range(7)})
    platform.endpoints.refused = {"live-f3"}
    provisioning = await platform.provisioning()
    await provisioning.provision(load(tmp_path / "app").endpoints)
    assert len(platform.endpoints.there) == 6
    assert platform.endpoints.most == DEV_DEPLOYS_AT_ONCE
    assert "live-f3 could not be provisioned: no" in platform.said
    assert provisioning.states["live-f3"] == "failed: no"
    assert provisioning.states["live-f2"] == "ready"


async def test_calls_at_once_create_one(platform: Platform, tmp_path: Path) -> None:
    one = served(tmp_path / "app")
    provisioning = await platform.provisioning()
    ids = await asyncio.gather(*(provisioning.ensure(one) for _ in range(4)))
    assert set(ids) == {"e1"}

    await platform.endpoints.delete("e1")

    async def miss() -> str:
        provisioning.forget(one, "e1")
        return await provisioning.ensure(one)

    assert set(await asyncio.gather(*(miss() for _ in range(4)))) == {"e2"}
    assert await miss() == "e2", "a call that is late misses the old one only"
    assert list(platform.endpoints.there) == ["e2"]
    assert platform.endpoints.there["e2"]["temporary"] is True


async def test_one_that_is_created_while_its_caller_leaves_is_known(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, created, answer = platform.endpoints.create, asyncio.Event(), asyncio.Event()

    async def slow(fields: Mapping[str, Any]) -> dict[str, Any]:
        made = await create(fields)
        created.set()
        await answer.wait()
        return made

    monkeypatch.setattr(platform.endpoints, "create", slow)
    one, provisioning = served(tmp_path / "app"), await platform.provisioning()
    calling = asyncio.create_task(provisioning.ensure(one))
    await created.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    answer.set()
    assert await provisioning.ensure(one) == "e1"

    answer.clear()
    provisioning.forget(one, "e1")
    calling = asyncio.create_task(provisioning.ensure(one))
    await asyncio.sleep(0)
    await provisioning.close()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_a_call_needs_no_local_file_and_no_template_of_somebody(
    platform: Platform, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("no folder")
    theirs = {"id": "t9", "name": "live-caption", "imageName": "example/caption:1"}
    platform.templates.there["t9"] = dict(theirs)
    provisioning = await platform.provisioning()
    assert await provisioning.ensure(served(tmp_path / "app")) == "e1"
    assert any("cannot be written" in line for line in platform.said)
    assert platform.templates.there["t9"] == theirs


async def test_what_cannot_change_is_replaced(platform: Platform, tmp_path: Path) -> None:
    provisioning = await platform.provisioning()
    await provisioning.ensure(served(tmp_path / "queue"))
    balanced = served(tmp_path / "balanced", BALANCED.replace("shop", "caption"))
    assert await provisioning.ensure(balanced) == "e2"
    assert [one["type"] for one in platform.endpoints.there.values()] == ["LOAD_BALANCER"]
    assert platform.said[-1] == "live-caption: replaced, e2 (it is LOAD_BALANCER now, and was QUEUE)"
    wants_a_gpu = served(
        tmp_path / "gpu", BALANCED.replace("shop", "caption").replace("cpu=True", "gpu=True")
    )
    assert await provisioning.ensure(wants_a_gpu) == "e3"
    assert len(platform.templates.there) == 1


async def test_one_that_somebody_deletes_while_it_is_updated_is_created(
    platform: Platform, tmp_path: Path
) -> None:
    provisioning = await platform.provisioning()
    await provisioning.ensure(served(tmp_path / "app"))
    platform.endpoints.there.clear()
    platform.templates.there.clear()
    changed = served(tmp_path / "changed", ONE.replace("(0, 1)", "(0, 2)"))
    assert await provisioning.ensure(changed) == "e2"
    assert await provisioning.clean(()) == ["live-caption"]
    assert platform.endpoints.there == platform.templates.there == {}


async def test_endpoints_that_are_not_temporary_are_left_alone(platform: Platform, tmp_path: Path) -> None:
    """Somebody may have called one so."""
    theirs: dict[str, Any] = {"id": "e9", "name": "live-caption", "type": "QUEUE", "computeType": "CPU"}
    theirs |= {"templateId": "t9", "workersMin": 0}
    platform.endpoints.there["e9"] = dict(theirs)
    provisioning = await platform.provisioning()
    assert await provisioning.ensure(served(tmp_path / "app")) == "e1"
    assert await provisioning.clean(["live-caption"]) == ["live-caption"]
    assert platform.endpoints.there == {"e9": theirs}


async def test_no_worker_is_kept_while_no_server_runs(platform: Platform, tmp_path: Path) -> None:
    source = ONE.replace("(0, 1)", "(1, 2)")
    one, provisioning = served(tmp_path / "app", source), await platform.provisioning()
    await provisioning.ensure(one)
    somebodys = {"name": "live-other", "type": "QUEUE", "temporary": True, "idleTimeout": 5, "workersMin": 1}
    platform.endpoints.there["e9"] = {"id": "e9", "computeType": "CPU", "templateId": "t9", **somebodys}
    assert platform.endpoints.there["e1"]["workersMin"] == 1
    assert [str(left) for left in await provisioning.leave()] == ["live-caption stays, without workers"]
    assert platform.endpoints.there["e1"]["workersMin"] == 0
    assert platform.endpoints.there["e9"]["workersMin"] == 1, "another project's"

    again = await platform.provisioning()
    assert await again.ensure(one) == "e1"
    assert platform.endpoints.there["e1"]["workersMin"] == 1
    assert platform.said[-1].endswith("(its minimum of workers was 0, and is 1 now)")
    await platform.endpoints.delete("e1")
    assert await again.leave() == []


async def test_those_that_were_made_since_the_start_can_be_deleted_alone(
    platform: Platform, tmp_path: Path
) -> None:
    await (await platform.provisioning()).ensure(served(tmp_path / "app"))
    again = await platform.provisioning()
    await again.ensure(served(tmp_path / "changed", ONE.replace("(0, 1)", "(0, 2)")))
    await again.ensure(served(tmp_path / "other", ONE.replace("caption", "other")))
    assert await again.remove_made() == ["live-other"]
    assert [one["name"] for one in platform.endpoints.there.values()] == ["live-caption"]
    assert [one["name"] for one in platform.templates.there.values()] == ["live-caption"]
    assert platform.said[-1].startswith("live-other: created")
    assert [left.name for left in await again.leave()] == ["live-caption"]
