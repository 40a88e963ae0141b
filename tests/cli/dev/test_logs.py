"""Whose lines `stoker logs` shows, and how it keeps up with workers that come and go."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.cli.consoles import plain_console
from stoker.cli.dev import worker_logs
from stoker.cli.dev.local_server.display import Display
from stoker.cli.dev.logs import _chosen, _chosen_worker
from stoker.cli.dev.worker_logs import follow_worker, follow_workers, placed, show_workers
from stoker.cli.errors import CliError
from stoker.client import Event, NotFound, Unavailable, WorkerLog
from stoker.client.apps.resources import LIVE_PREFIX


def shown(id_: str, name: str, *workers: str, kind: str = "LOAD_BALANCER") -> dict[str, Any]:
    states = [{"id": one, "status": "THROTTLED" if "throttled" in one else "RUNNING"} for one in workers]
    return {"id": id_, "name": name, "type": kind, "workers": states}


SHOP = shown("e1", "shop", "abc1", "abd2", "e1-throttled-0")
CAPTION = shown("e2", LIVE_PREFIX + "caption", "xyz", kind="QUEUE")


class FakeStoker:
    """A client of a platform with one endpoint, whose `workers` have these logs. A log is what comes, or an
    error; `gone` is the end of those that are followed."""

    def __init__(self, logs: dict[str, list[tuple[str, int]] | Exception]) -> None:
        self.logs = logs
        self.workers = list(logs)
        self.afters: list[str | None] = []
        self.manage = SimpleNamespace(endpoints=SimpleNamespace(get=self._get))
        self.gone: dict[str, asyncio.Event] = {}

    async def _get(self, endpoint: str, **_: Any) -> dict[str, Any]:
        return shown(endpoint, "shop", *self.workers)

    def worker_log(self, _: str, worker: str, *, follow: bool = False, after: str | None = None) -> Any:
        return self._events(worker, after) if follow else self._last(worker)

    async def _last(self, worker: str) -> WorkerLog:
        lines = self._lines(worker)
        return WorkerLog(worker, tuple(line for line, _ in lines), tuple(at for _, at in lines))

    def _lines(self, worker: str) -> list[tuple[str, int]]:
        found = self.logs[worker]
        if isinstance(found, Exception):
            raise found
        return found

    async def _events(self, worker: str, after: str | None) -> AsyncIterator[Event]:
        self.afters.append(after)
        for n, (line, at) in enumerate(self._lines(worker)):
            if after is None or n > int(after.partition("-")[2]):
                yield Event("log", f"0-{n}", {"line": line, "printedAt": at})
        if worker in self.gone:
            await self.gone[worker].wait()
        yield Event("end", "", {"id": worker})


def printed(work: Any, stoker: FakeStoker) -> list[str]:
    """The lines without their time."""
    output = io.StringIO()
    display = Display(plain_console(file=output, width=200), lambda: 0.0)
    asyncio.run(work(stoker, "e1", "shop", display))
    return [line.partition(" ")[2] for line in output.getvalue().splitlines()]


def test_an_endpoint_of_either_type_is_chosen_by_its_name_or_id() -> None:
    found = [SHOP, CAPTION]
    assert _chosen(found, "shop") == _chosen(found, "e1") == [SHOP]
    assert _chosen(found, "caption") == [CAPTION]
    with pytest.raises(CliError, match="there is no endpoint nothing"):
        _chosen(found, "nothing")


def test_a_worker_is_chosen_by_the_beginning_of_its_id() -> None:
    assert placed(SHOP) == ["abc1", "abd2"]
    assert _chosen_worker([SHOP, CAPTION], "abd") == (SHOP, "abd2")
    assert _chosen_worker([SHOP, CAPTION], "xyz") == (CAPTION, "xyz")
    with pytest.raises(CliError, match="2 workers have ids that begin with ab"):
        _chosen_worker([SHOP], "ab")
    with pytest.raises(CliError, match="there is no worker zz of shop: there are abc1, abd2"):
        _chosen_worker([SHOP], "zz")
    with pytest.raises(CliError, match="there is no worker zz of none: there are none now"):
        _chosen_worker([shown("e", "none")], "zz")


def test_each_line_has_its_worker_and_a_node_that_does_not_answer_hides_no_other_worker() -> None:
    stoker = FakeStoker(
        {
            "a": [("loading", 0), ("listening", 3)],
            "b": Unavailable("node n did not send the log", 503),
            "c": [],
            "d": NotFound("gone", 404),
        }
    )
    assert printed(show_workers, stoker) == [
        "shop/a loading",
        "shop/a listening",
        "shop/b node n did not send the log",
        "shop/c it has printed nothing",
    ]
    assert printed(show_workers, FakeStoker({})) == ["shop it has no workers now"]


def test_workers_that_come_are_followed_and_one_that_comes_back_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_logs, "POLL_S", 0)
    stoker = FakeStoker({"a": [("one", 0)], "b": Unavailable("an earlier version", 503)})
    stoker.workers = ["a"]

    async def work(*about: Any) -> None:
        stoker.gone = {"a": asyncio.Event()}
        following = asyncio.create_task(follow_workers(*about))
        await until(lambda: stoker.afters == [None])
        stoker.workers = ["b"]
        await until(lambda: stoker.afters == [None, None])
        stoker.gone["a"].set()
        stoker.logs["a"] = [("one", 0), ("two", 0)]
        stoker.workers = ["a", "b"]
        await until(lambda: stoker.afters[2:] == ["0-0"])
        following.cancel()
        await asyncio.wait([following])

    assert printed(work, stoker) == [
        "shop/a one",
        "shop/b its log cannot be followed: an earlier version",
        "shop/a two",
    ]


async def until(done: Any) -> None:
    while not done():  # noqa: ASYNC110  # a turn of the loop, no time
        await asyncio.sleep(0)


def test_one_worker_is_followed_until_it_is_gone() -> None:
    def work(stoker: FakeStoker, *about: Any) -> Awaitable[str | None]:
        return follow_worker(stoker, about[0], "a", *about[1:])  # type: ignore[arg-type]

    assert printed(work, FakeStoker({"a": [("one", 0)]})) == ["shop one"]
