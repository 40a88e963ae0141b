"""What is deployed, on a platform of dicts, and what is left as it is."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.cli.dev import deploying
from stoker.cli.errors import CliError
from tests.cli.dev.written_apps import BALANCED, ONE, app


class Kind:
    """The endpoints or the templates."""

    def __init__(self, letter: str) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self._ids = (f"{letter}{n}" for n in itertools.count(1))

    def list(self, **query: Any) -> list[dict[str, Any]]:
        return list(self.there.values())

    def create(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        made = {"id": next(self._ids), "version": 1, "origin": "api", **fields}
        self.there[made["id"]] = made
        return made

    def update(self, member: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        self.there[member] |= fields
        return self.there[member]

    def delete(self, member: str) -> None:
        del self.there[member]


@pytest.fixture
def manage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    manage = SimpleNamespace(endpoints=Kind("e"), templates=Kind("t"))

    @contextlib.contextmanager
    def opened(url: str, data_dir: Path) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(manage=manage)

    monkeypatch.setattr(deploying, "open_client", opened)
    monkeypatch.chdir(tmp_path)
    return manage


def deploy() -> None:
    deploying.deploy("http://platform", Path("data"), ())


def undeploy() -> None:
    deploying.undeploy("http://platform", Path("data"), (), sure=True)


def test_it_is_created_updated_and_deleted(manage: SimpleNamespace, tmp_path: Path) -> None:
    app(tmp_path, one=ONE)
    deploy()
    app(tmp_path, one=ONE.replace("(0, 1)", "(0, 2)"))
    deploy()
    (made,) = manage.endpoints.list()
    assert (made["name"], made["workersMax"], made["templateId"]) == ("caption", 2, "t1")
    undeploy()
    assert (manage.endpoints.list(), manage.templates.list()) == ([], [])


def test_what_is_no_apps_is_left_as_it_is(manage: SimpleNamespace, tmp_path: Path) -> None:
    app(tmp_path, one=ONE)
    template = manage.templates.create({"name": "caption", "imageName": "example/caption:1"})
    manage.endpoints.create({"name": "caption", "templateId": template["id"], "type": "QUEUE"})
    before = dict(template)
    with pytest.raises(CliError, match="example/caption:1, and is not an app's"):
        deploy()
    with pytest.raises(CliError, match="none of these is deployed"):
        undeploy()
    assert manage.templates.list() == [before]
    assert [one["templateId"] for one in manage.endpoints.list()] == [template["id"]]


def test_a_change_that_is_refused_changes_nothing(manage: SimpleNamespace, tmp_path: Path) -> None:
    app(tmp_path, one=ONE)
    deploy()
    before = dict(manage.templates.list()[0])
    app(tmp_path, one=BALANCED.replace('"shop"', '"caption"'))
    with pytest.raises(CliError, match="cannot change from QUEUE to LOAD_BALANCER"):
        deploy()
    assert manage.templates.list() == [before]
