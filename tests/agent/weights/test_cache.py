"""Workers wait for their weights: one fetch for all, progress, failures, and what is kept while used."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from stoker.agent.weights import tries
from stoker.agent.weights.cache import FACT_MAX, WeightsCache, _fitting
from stoker.agent.weights.fetching import Fetcher, Try
from stoker.agent.weights.interfaces import NoWeights, WeightsNews
from stoker.agent.weights.sources import Hub
from stoker.wire.messages.weights import AVAILABLE, HELD, MOST, ROOM, SIZES
from tests.agent.weights_folder import FILES, SIZE, made_store
from tests.servers.weights_server import WeightsServer, locked, put, weights_server

FLUX, SDXL = locked("flux", FILES), locked("sdxl", FILES)
MODEL = "/owner/repo/resolve/c0ffee/model.safetensors"
READY = WeightsNews(ready=True)
SECONDS = 60.0


class Heard:
    """What a worker heard of its weights."""

    def __init__(self) -> None:
        self.news: list[WeightsNews] = []
        self._more = asyncio.Event()

    def __call__(self, news: WeightsNews) -> None:
        self.news.append(news)
        self._more.set()

    async def until(self, done: Callable[[WeightsNews], bool]) -> WeightsNews:
        async with asyncio.timeout(SECONDS):
            while not (self.news and done(self.news[-1])):
                self._more.clear()
                await self._more.wait()
        return self.news[-1]

    async def ready(self) -> None:
        await self.until(lambda news: news.ready)


@asynccontextmanager
async def running(fetcher: Fetcher) -> AsyncIterator[WeightsCache]:
    cache = WeightsCache(fetcher, "gpu-1", progress_s=0.01)
    task = asyncio.create_task(cache.run())
    try:
        await cache.looked.wait()
        yield cache
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_all_workers_wait_for_one_fetch(fetcher: Fetcher, server: WeightsServer) -> None:
    async with running(fetcher) as cache:
        workers = [Heard() for _ in range(3)]
        for n, heard in enumerate(workers):
            cache.hold(f"w{n}", [FLUX], heard)
            assert heard.news == [], "nobody is called before it has returned"
        for heard in workers:
            await heard.ready()
    assert sorted(path for path, *_ in server.seen) == sorted(server.files)


async def test_a_worker_that_comes_later_is_ready_without_a_request(
    fetcher: Fetcher, server: WeightsServer
) -> None:
    async with running(fetcher) as cache:
        first, second = Heard(), Heard()
        cache.hold("w1", [FLUX], first)
        await first.ready()
        asked = len(server.seen)
        cache.hold("w2", [FLUX], second)
        await second.ready()
        assert (second.news, len(server.seen)) == ([READY], asked)


async def test_the_progress_is_said(fetcher: Fetcher, server: WeightsServer) -> None:
    server.gate, server.gate_at = threading.Event(), 3000
    async with running(fetcher) as cache:
        heard = Heard()
        cache.hold("w", [FLUX], heard)
        await heard.until(lambda news: news.text.startswith("node gpu-1 fetches the weights flux: "))
        server.gate.set()
        await heard.ready()
        assert not any(news.failed for news in heard.news)


async def test_a_worker_with_two_entries_waits_for_both(fetcher: Fetcher) -> None:
    async with running(fetcher) as cache:
        heard = Heard()
        cache.hold("w", [FLUX, SDXL], heard)
        await heard.ready()
        assert heard.news.count(READY) == 1
        assert fetcher.store.held() == {FLUX.key: SIZE, SDXL.key: SIZE}
        assert all(kept.busy for kept in fetcher.store.kept().values())
        cache.release("w")
        assert not any(kept.busy for kept in fetcher.store.kept().values())


async def test_a_failure_is_said_and_tried_again(
    fetcher: Fetcher, server: WeightsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "FIRST_S", 0.01)
    monkeypatch.setattr(tries, "DEFINITE_FIRST_S", 0.01)
    server.statuses[MODEL] = 404
    async with running(fetcher) as cache:
        heard = Heard()
        cache.hold("w", [FLUX], heard)
        failed = await heard.until(lambda news: news.failed)
        assert failed.text.startswith(
            "node gpu-1 cannot get the weights flux: there is no model.safetensors of owner/repo at c0ffee"
        )
        del server.statuses[MODEL]
        await heard.ready()


async def test_a_fault_of_its_own_is_a_failure_like_others(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "FIRST_S", 0.01)
    bring, faults = fetcher.bring, [ZeroDivisionError("a fault")]

    def faulty(*arguments):  # type: ignore[no-untyped-def]
        if faults:
            raise faults.pop()
        bring(*arguments)

    monkeypatch.setattr(fetcher, "bring", faulty)
    async with running(fetcher) as cache:
        heard = Heard()
        cache.hold("w", [FLUX], heard)
        assert "ZeroDivisionError" in (await heard.until(lambda news: news.failed)).text
        await heard.ready()


async def test_a_worker_whose_start_fails_is_not_fetched_for_again(
    fetcher: Fetcher, server: WeightsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "FIRST_S", 0.01)

    def fails(news: WeightsNews) -> None:
        if news.ready:
            raise ZeroDivisionError("a fault of the worker's")

    async with running(fetcher) as cache:
        cache.hold("w", [FLUX], fails)
        (task,) = cache._tasks.values()
        async with asyncio.timeout(SECONDS):
            await task
        assert cache._tasks == {}


async def test_a_folder_that_cannot_be_read_does_not_end_the_agent(
    fetcher: Fetcher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, {".odd.agent": b"not a size"})

    def unreadable() -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(fetcher.store, "sweep", unreadable)
    async with running(fetcher) as cache:
        heard = Heard()
        cache.hold("w", [FLUX], heard)
        await heard.ready()
    assert list(fetcher.store.kept()) == [FLUX.key]


async def test_a_worker_whose_weights_were_damaged_gets_them_anew(
    fetcher: Fetcher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses them, but has no process while it waits: it does not wait for itself."""
    monkeypatch.setattr(tries, "FIRST_S", 0.01)
    async with running(fetcher) as cache:
        first, again = Heard(), Heard()
        cache.hold("w", [FLUX], first)
        await first.ready()
        (folder / "flux" / "model.safetensors").write_bytes(b"x")
        cache.hold("w", [FLUX], again)
        await again.ready()
        assert (folder / "flux" / "model.safetensors").read_bytes() == FILES["model.safetensors"]
        assert fetcher.store.kept()[FLUX.key].busy


async def test_a_new_version_with_other_contents_starts_while_a_worker_uses_the_old_ones(
    fetcher: Fetcher, folder: Path, server: WeightsServer
) -> None:
    model = "/owner/repo/resolve/c0ffee/model.safetensors"
    new = locked("flux", {**FILES, "model.safetensors": b"weights" * 1001})
    async with running(fetcher) as cache:
        old, fresh, back = Heard(), Heard(), Heard()
        cache.hold("old", [FLUX], old)
        await old.ready()
        server.files[model] = b"weights" * 1001
        cache.hold("new", [new], fresh)
        await fresh.ready()
        assert {key: one.busy for key, one in fetcher.store.kept().items()} == {FLUX.key: True, new.key: True}
        assert os.readlink(folder / "flux") == new.key
        cache.hold("old-again", [FLUX], back)
        await back.ready()
        assert os.readlink(folder / "flux") == FLUX.key, "those of the worker that starts last"
        cache.release("new")
        assert not fetcher.store.kept()[new.key].busy


async def test_what_a_worker_waits_for_is_not_removed_for_its_other_weights(
    server: WeightsServer, folder: Path
) -> None:
    """flux is here, was used least recently, and is still being verified."""
    fetcher = Fetcher(store := made_store(folder, 2 * SIZE + 10), Hub(server.url))
    for n, entry in enumerate((FLUX, locked("old", FILES))):
        fetcher.bring(entry, Try())
        os.utime(folder / f".{entry.key}.agent", (n, n))
    async with running(fetcher) as cache:
        heard = Heard()
        cache.hold("w", [SDXL, FLUX], heard)
        await heard.ready()
    assert list(store.held()) == [FLUX.key, SDXL.key]
    assert len([path for path, *_ in server.seen if path == MODEL]) == 3, "nothing was fetched twice"


async def test_what_nobody_waits_for_any_more_is_not_fetched_on_and_resumed_later(
    fetcher: Fetcher, server: WeightsServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "FIRST_S", 0.01)
    large = {"model.safetensors": bytes(3_000_000)}
    entry = locked("large", large)
    fetcher.store._most_bytes = 10_000_000
    server.hub(large)
    server.gate, server.gate_at = threading.Event(), 1_000_000
    async with running(fetcher) as cache:
        heard, again = Heard(), Heard()
        cache.hold("w", [entry], heard)
        await heard.until(lambda news: "0.7 of 3.0 MB" in news.text or "1.0 of 3.0 MB" in news.text)
        cache.release("w")
        gate, server.gate = server.gate, None
        cache.hold("w", [entry], again)
        asyncio.get_running_loop().call_later(0.1, gate.set)
        await again.ready()
        assert gate.is_set()
        assert not any(news.failed for news in again.news), "the try that was stopped is waited for"
        assert heard.news.count(READY) == 0
    assert server.seen[-1][1] is not None, "the rest was requested"
    assert (folder / "large" / "model.safetensors").stat().st_size == 3_000_000


async def test_the_facts_say_what_is_held_and_what_fits(fetcher: Fetcher) -> None:
    facts: dict[str, str] = {}
    reported = asyncio.Event()

    def report(changed: Mapping[str, str]) -> None:
        facts.update(changed)
        reported.set()

    async def when(said: Callable[[], bool]) -> None:
        while not said():
            reported.clear()
            await reported.wait()

    cache = WeightsCache(fetcher, "gpu-1", progress_s=0.01)
    cache.report_to(report)
    task = asyncio.create_task(cache.run())
    await cache.looked.wait()
    assert facts == {HELD: "", SIZES: "", ROOM: "1000000", AVAILABLE: "1000000", MOST: "1000000"}
    heard = Heard()
    cache.hold("w", [FLUX, SDXL], heard)
    await heard.ready()
    assert facts[HELD] == f"{FLUX.key}, {SDXL.key}"
    assert facts[SIZES] == f"{SIZE}, {SIZE}"
    left = str(1_000_000 - 2 * SIZE)
    await when(lambda: facts[AVAILABLE] == facts[ROOM] == left)
    cache.release("w")
    await when(lambda: (facts[ROOM], facts[AVAILABLE]) == (left, "1000000"))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_what_a_fact_cannot_hold_is_left_out_of_both() -> None:
    held = {f"entry-{n:03}@{'ab' * 8}": n for n in range(400)}
    fitting = _fitting(held)
    assert list(fitting.items()) == list(held.items())[: len(fitting)]
    assert len(", ".join(held)) > FACT_MAX >= len(", ".join(fitting)) > FACT_MAX - 40


async def test_what_comes_before_it_runs_is_begun_then(fetcher: Fetcher) -> None:
    cache, heard = WeightsCache(fetcher, "gpu-1"), Heard()
    cache.hold("w", [FLUX], heard)
    task = asyncio.create_task(cache.run())
    await heard.ready()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert not any(kept.busy for kept in fetcher.store.kept().values()), "an agent that ends uses nothing"


async def test_an_agent_that_fetches_none_lets_its_workers_start() -> None:
    heard = Heard()
    NoWeights().hold("w", [FLUX], heard)
    assert heard.news == []
    await heard.ready()


async def test_a_worker_that_is_released_at_once_does_not_start() -> None:
    heard, weights = Heard(), NoWeights()
    weights.hold("w", [FLUX], heard)
    weights.release("w")
    for _ in range(3):
        await asyncio.sleep(0)
    assert heard.news == []


async def test_two_agents_share_a_folder(folder: Path) -> None:
    """The second waits for the first, and neither removes what the other uses."""
    with weights_server() as server:
        server.hub(FILES)
        one, two = (Fetcher(made_store(folder, SIZE + 10), Hub(server.url)) for _ in range(2))
        async with running(one) as first, running(two) as second:
            heard, other = Heard(), Heard()
            first.hold("w", [FLUX], heard)
            await heard.ready()
            second.hold("v", [SDXL], other)
            failed = await other.until(lambda news: news.failed)
            assert "7.0 kB of at most 7.0 kB are in use" in failed.text
            assert list(one.store.held()) == [FLUX.key]
