"""The cache of inputs over the real guard, real files and an origin on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.interfaces import FetchedInput, InputRefused, InputRequest
from stoker.agent.jobs.inputs import cache as input_cache
from stoker.agent.jobs.inputs.cache import InputCache
from stoker.outbound.guard import Guard
from stoker.outbound.wait_limits import INPUTS, Waiter, WaitRule

SECONDS = 100.0  # far above what loopback needs
KEPT = {"ETag": '"v1"'}
FRESH = {"Cache-Control": "max-age=100", "ETag": '"v1"'}


class Node:
    """One data folder, and the agents that run on it one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "inputs"
        self.now = 1_000_000.0
        self.guard = Guard(allow_private=True)
        self.caches: list[InputCache] = []
        self.cache = self.restart()

    def restart(self, most: int = 1 << 30, reserve: int = 0) -> InputCache:
        self.cache = InputCache(
            self.folder, most, lambda private: self.guard, clock=lambda: self.now, reserve=reserve
        )
        self.caches.append(self.cache)
        return self.cache

    async def get(
        self,
        url: str,
        *,
        most: int = 1 << 20,
        seconds: float = SECONDS,
        private: bool = True,
        account: str = "",
    ) -> bytes:
        return read(await self.cache.fetch(InputRequest(url, most, seconds, private, Waiter(account))))

    def files(self, folder: str) -> list[Path]:
        return sorted((self.folder / folder).iterdir())


def read(found: FetchedInput) -> bytes:
    try:
        with open(found.fd, "rb") as file:
            body = file.read()
    except BaseException:
        os.close(found.fd)
        raise
    assert (len(body), hashlib.sha256(body).hexdigest()) == (found.size, found.sha256)
    return body


@pytest.fixture
async def node(tmp_path: Path, descriptors: Callable[[], int]) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    yield made
    for cache in made.caches:
        await cache.close()
        assert cache._tasks == set()
        assert cache._transfers == {}
    assert made.files("incoming") == []
    assert descriptors() == 0


# -- while it holds


async def test_a_hundred_jobs_fetch_once_while_it_is_fresh(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a"] = page(b"hello", FRESH)
    assert {await node.get(origin.url()) for _ in range(100)} == {b"hello"}
    assert len(origin.seen) == 1
    assert node.cache._store.size == 5


async def test_a_hundred_jobs_at_once_share_one_transfer(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a"] = page(b"hello" * 1000, {"Cache-Control": "no-store"}, gate=asyncio.Event())
    waiting = [asyncio.ensure_future(node.get(origin.url())) for _ in range(100)]
    await origin.halfway.wait()
    origin.pages["/a"].gate.set()
    assert set(await asyncio.gather(*waiting)) == {b"hello" * 1000}
    assert len(origin.seen) == 1


async def test_what_may_have_changed_is_revalidated(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a"] = page(b"hello", KEPT)
    assert [await node.get(origin.url()) for _ in range(3)] == [b"hello"] * 3
    assert ['If-None-Match: "v1"' in head for head in origin.seen] == [False, True, True]
    origin.pages["/a"] = page(b"changed", {"ETag": '"v2"'})
    assert await node.get(origin.url()) == b"changed"
    assert await node.get(origin.url()) == b"changed"
    assert 'If-None-Match: "v2"' in origin.seen[-1]


async def test_freshness_ends_and_begins_anew(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a"] = page(b"hello", FRESH)
    for later, requests in ((0, 1), (99, 1), (100, 2), (199, 2), (200, 3)):
        node.now = 1_000_000.0 + later
        assert await node.get(origin.url()) == b"hello"
        assert len(origin.seen) == requests


@pytest.mark.parametrize(
    "headers", [{}, {"Cache-Control": "no-store", "ETag": '"v1"'}, {"Cache-Control": "private"}]
)
async def test_what_is_not_to_be_kept_is_not(
    node: Node, origin: Any, page: Any, headers: dict[str, str]
) -> None:
    origin.pages["/a"] = page(b"hello", headers)
    assert [await node.get(origin.url()) for _ in range(2)] == [b"hello"] * 2
    assert len(origin.seen) == 2
    assert node.files("contents") == node.files("urls") == []


async def test_one_content_is_kept_once_under_two_urls(node: Node, origin: Any, page: Any) -> None:
    origin.pages |= {"/a": page(b"hello", FRESH), "/b": page(b"hello", FRESH)}
    assert await node.get(origin.url("/a")) == await node.get(origin.url("/b"))
    assert len(node.files("contents")) == 1
    assert len(node.files("urls")) == 2


async def test_a_redirect_that_leads_elsewhere_is_not_mistaken_for_no_change(
    node: Node, origin: Any, page: Any
) -> None:
    """Both ends call their present version "v1"."""
    origin.pages |= {
        "/a": page(status="302 Found", headers={"Location": "/one"}),
        "/one": page(b"one", FRESH),
        "/two": page(b"two", FRESH),
    }
    assert await node.get(origin.url()) == b"one"
    origin.pages["/a"] = page(status="302 Found", headers={"Location": "/two"})
    assert await node.get(origin.url()) == b"two"


async def test_a_url_with_a_secret_is_written_nowhere(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a?sig=hunter2"] = page(b"hello", FRESH)
    await node.get(origin.url("/a?sig=hunter2"))
    held = [path for path in node.folder.rglob("*") if path.is_file()]
    assert len(held) == 2
    assert not any(b"hunter2" in path.read_bytes() or "hunter2" in path.name for path in held)
    assert {path.stat().st_mode & 0o777 for path in node.folder.iterdir()} == {0o700}


async def test_what_a_private_address_answered_is_not_served_to_who_may_not_go_there(
    node: Node, origin: Any, page: Any
) -> None:
    origin.pages["/a"] = page(b"internal", FRESH)
    assert await node.get(origin.url()) == b"internal"
    node.guard = Guard()
    with pytest.raises(InputRefused) as caught:
        await node.get(origin.url(), private=False)
    assert caught.value.reason == "private_address"


# -- guests of one transfer


async def test_a_strict_guest_hurts_no_other(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a"] = page(b"x" * 1000, KEPT, gate=asyncio.Event(), announced=False)
    generous = asyncio.ensure_future(node.get(origin.url()))
    await origin.halfway.wait()
    strict = asyncio.ensure_future(node.get(origin.url(), most=100))
    hasty = asyncio.ensure_future(node.get(origin.url(), seconds=0.01))
    leaving = asyncio.ensure_future(node.get(origin.url()))
    for refused, reason in ((strict, "too_large"), (hasty, "too_slow")):
        with pytest.raises(InputRefused) as caught:
            await refused
        assert caught.value.reason == reason
        assert "127.0.0.1" in str(caught.value)
    leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    origin.pages["/a"].gate.set()
    assert await generous == b"x" * 1000
    assert len(origin.seen) == 1


async def test_the_first_guest_may_leave_before_the_others(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a"] = page(b"hello", KEPT, gate=asyncio.Event())
    first = asyncio.ensure_future(node.get(origin.url(), most=1))
    second = asyncio.ensure_future(node.get(origin.url()))
    with pytest.raises(InputRefused, match="has 5 bytes or more; at most 1 are allowed"):
        await first
    origin.pages["/a"].gate.set()
    assert await second == b"hello"


async def test_the_last_guest_ends_the_transfer(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a"] = page(b"hello", KEPT, gate=asyncio.Event())
    guests = [asyncio.ensure_future(node.get(origin.url())) for _ in range(2)]
    await origin.halfway.wait()
    for guest in guests:
        guest.cancel()
    await asyncio.wait(guests)
    await origin.hung_up.wait()
    origin.pages["/a"].gate.set()
    assert await node.get(origin.url()) == b"hello", "a new one begins anew"


@pytest.mark.parametrize("announced", [True, False])
async def test_who_is_the_only_one_stops_at_the_limit(
    node: Node, origin: Any, page: Any, announced: bool
) -> None:
    origin.pages["/a"] = page(b"x" * (4 << 20), KEPT, gate=asyncio.Event(), announced=announced)
    with pytest.raises(InputRefused) as caught:
        await node.get(origin.url(), most=1000)
    assert caught.value.reason == "too_large"
    await origin.hung_up.wait()
    assert node.files("contents") == []


async def test_a_limit_holds_for_what_is_here_already(node: Node, origin: Any, page: Any) -> None:
    origin.pages |= {"/fresh": page(b"hello", FRESH), "/asked": page(b"hello", KEPT)}
    for path in ("/fresh", "/asked"):
        assert await node.get(origin.url(path), most=5) == b"hello"
        with pytest.raises(InputRefused, match="at most 4"):
            await node.get(origin.url(path), most=4)


async def test_only_so_many_transfers_of_a_host_at_once_and_another_is_not_held_up(
    node: Node, origin: Any, page: Any
) -> None:
    gate, most = asyncio.Event(), INPUTS.slots // 16  # of a caller that is alone
    paths = [f"/{n}" for n in range(most + 3)]
    origin.pages = {path: page(b"hello", KEPT, gate=gate) for path in paths} | {"/quick": page(b"quick")}
    waiting = [asyncio.ensure_future(node.get(origin.url(path))) for path in paths]
    await origin.until_requests(most)
    for late in ("/late", "?late"):
        with pytest.raises(InputRefused, match="within"):
            await node.get(origin.url(late), seconds=0.01)
    assert len(origin.seen) == most
    assert await node.get(origin.url("/quick").replace("127.0.0.1", "localhost")) == b"quick"
    gate.set()
    assert await asyncio.gather(*waiting) == [b"hello"] * len(paths)


async def test_only_so_many_transfers_at_once(
    node: Node, origin: Any, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_cache, "INPUTS", WaitRule(slots=16))
    node.restart()
    gate = asyncio.Event()
    origin.pages = {f"/{n}": page(b"hello", gate=gate) for n in range(3)} | {"/quick": page(b"quick")}
    urls = [origin.url(path) for path in ("/0", "/1", "/2")]
    urls[2] = urls[2].replace("127.0.0.1", "localhost")
    waiting = [asyncio.ensure_future(node.get(url)) for url in urls]
    await origin.until_requests(2)
    with pytest.raises(InputRefused, match="within"):
        await node.get(origin.url("/late").replace("127.0.0.1", "127.0.0.2"), seconds=0.01)
    assert len(origin.seen) == 2
    assert await node.get(origin.url("/quick"), account="other") == b"quick"
    gate.set()
    assert await asyncio.gather(*waiting) == [b"hello"] * 3


async def test_a_failure_is_reported_to_all_and_forgotten(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a"] = page(b"", status="503 No", gate=asyncio.Event())
    guests = [asyncio.ensure_future(node.get(origin.url())) for _ in range(3)]
    await origin.halfway.wait()
    origin.pages["/a"].gate.set()
    for one in await asyncio.gather(*guests, return_exceptions=True):
        assert isinstance(one, InputRefused)
        assert (one.reason, one.retryable) == ("http_status", True)
    origin.pages["/a"] = page(b"hello", KEPT)
    assert await node.get(origin.url()) == b"hello"


async def test_the_end_of_the_agent_ends_transfers(node: Node, origin: Any, page: Any) -> None:
    origin.pages["/a"] = page(b"hello", KEPT, gate=asyncio.Event())
    guest = asyncio.ensure_future(node.get(origin.url()))
    await origin.halfway.wait()
    await node.cache.close()
    with pytest.raises(InputRefused, match="shutting down"):
        await guest
    await origin.hung_up.wait()


# -- room


async def test_the_least_recently_used_goes(node: Node, origin: Any, page: Any) -> None:
    node.restart(most=3 * 8192)
    origin.pages = {f"/{n}": page(bytes([n]) * 8192, FRESH) for n in range(4)}
    for path in ("/0", "/1", "/2", "/0", "/3"):  # /1 is the one that nobody wanted for longest
        node.now += 1
        await node.get(origin.url(path))
    assert len(origin.seen) == 4
    assert node.cache._store.size == 3 * 8192
    await node.get(origin.url("/0"))
    assert len(origin.seen) == 4
    await node.get(origin.url("/1"))
    assert len(origin.seen) == 5


async def test_what_is_handed_out_stays_whole_when_it_is_evicted(node: Node, origin: Any, page: Any) -> None:
    node.restart(most=8192)
    origin.pages = {"/a": page(b"a" * 8192, FRESH), "/b": page(b"b" * 8192, FRESH)}
    first = await node.cache.fetch(InputRequest(origin.url("/a"), 10_000, SECONDS, True))
    await node.get(origin.url("/b"))
    assert [path.stat().st_size for path in node.files("contents")] == [8192]
    assert read(first) == b"a" * 8192


async def test_two_who_have_the_same_file_read_it_each_from_its_start(
    node: Node, origin: Any, page: Any
) -> None:
    origin.pages["/a"] = page(b"hello", KEPT, gate=asyncio.Event())
    wish = InputRequest(origin.url(), 10, SECONDS, True)
    both = [asyncio.ensure_future(node.cache.fetch(wish)) for _ in range(2)]
    await origin.halfway.wait()
    origin.pages["/a"].gate.set()
    one, other = await asyncio.gather(*both)
    assert read(one) == read(other) == b"hello"


async def test_what_is_larger_than_the_cache_is_served_and_not_kept(
    node: Node, origin: Any, page: Any
) -> None:
    node.restart(most=10)
    origin.pages["/a"] = page(b"x" * 11, FRESH)
    assert await node.get(origin.url()) == b"x" * 11
    assert node.files("contents") == []


async def test_a_full_disk_is_a_refusal_that_may_pass(node: Node, origin: Any, page: Any) -> None:
    node.restart(reserve=1 << 60)
    origin.pages["/a"] = page(b"hello", KEPT)
    with pytest.raises(InputRefused, match="too full") as caught:
        await node.get(origin.url())
    assert (caught.value.reason, caught.value.retryable) == ("no_room", True)


async def test_a_disk_that_fills_up_in_the_middle_leaves_nothing(
    node: Node, origin: Any, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin.pages["/a"] = page(b"hello" * 100_000, KEPT)

    def full(old: object, new: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(InputRefused, match="No space left"):
            await node.get(origin.url())
    assert node.files("contents") == node.files("incoming") == []
    assert await node.get(origin.url()) == b"hello" * 100_000


# -- over restarts, and damage


async def test_the_cache_outlives_the_agent(node: Node, origin: Any, page: Any) -> None:
    origin.pages |= {"/fresh": page(b"fresh", FRESH), "/asked": page(b"asked", KEPT)}
    for path in ("/fresh", "/asked"):
        await node.get(origin.url(path))
    node.restart()
    assert await node.get(origin.url("/fresh")) == b"fresh"
    assert await node.get(origin.url("/asked")) == b"asked"
    assert len(origin.seen) == 3
    assert 'If-None-Match: "v1"' in origin.seen[-1]


async def test_a_restart_with_less_room_makes_room(node: Node, origin: Any, page: Any) -> None:
    origin.pages = {f"/{n}": page(bytes([n]) * 8192, FRESH) for n in range(3)}
    for path in origin.pages:
        node.now += 1
        await node.get(origin.url(path))
    assert node.restart(most=8192)._store.size == 8192
    await node.get(origin.url("/2"))
    assert len(origin.seen) == 3, "the last one is the one that stayed"


def flip(path: Path) -> None:
    """The same size and, as far as `utime` can say, the same time."""
    before = path.stat()
    body = bytearray(path.read_bytes())
    body[0] ^= 1
    path.write_bytes(bytes(body))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # before Linux 6.13 it moves on every few ms
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(path: Path) -> None:
    os.truncate(path, 2)


def swap(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink, swap, pipe])
async def test_what_is_not_what_it_was_is_fetched_again(
    node: Node, origin: Any, page: Any, damage: Callable[[Path], None], restart: bool
) -> None:
    origin.pages["/a"] = page(b"hello", FRESH)
    await node.get(origin.url())
    [content] = node.files("contents")
    damage(content)
    if restart:
        node.restart()
    assert await node.get(origin.url()) == b"hello"
    assert len(origin.seen) == 2
    assert await node.get(origin.url()) == b"hello"
    assert len(origin.seen) == 2


async def test_a_content_that_was_only_touched_is_read_again_and_stays(
    node: Node, origin: Any, page: Any
) -> None:
    origin.pages["/a"] = page(b"hello", FRESH)
    await node.get(origin.url())
    os.utime(node.files("contents")[0])
    assert await node.get(origin.url()) == b"hello"
    assert len(origin.seen) == 1


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b'{"sha256": "../../etc/passwd"}', b"\xff\xfe", b'{"sha256": 5}'],
)
async def test_a_torn_index_is_no_index(node: Node, origin: Any, page: Any, text: bytes) -> None:
    origin.pages["/a"] = page(b"hello", FRESH)
    await node.get(origin.url())
    node.files("urls")[0].write_bytes(text)
    node.restart()
    assert node.files("urls") == node.files("contents") == []
    assert await node.get(origin.url()) == b"hello"


async def test_a_torn_file_is_never_served(node: Node, origin: Any, page: Any) -> None:
    """An agent is killed in the middle of a transfer."""
    gate = asyncio.Event()
    origin.pages["/a"] = page(b"hello" * 100_000, FRESH, gate=gate)
    script = f"""
import asyncio
from pathlib import Path
from stoker.agent.jobs.inputs.cache import InputCache
from stoker.agent.interfaces import InputRequest
from stoker.outbound.guard import Guard
guard = Guard(allow_private=True)
async def main():
    cache = InputCache(Path({str(node.folder)!r}), 1 << 30, lambda private: guard, reserve=0)
    await cache.fetch(InputRequest({origin.url()!r}, 1 << 20, 60.0, True))
asyncio.run(main())
"""
    source = str(Path(input_cache.__file__).parents[3])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", script, env={"PYTHONPATH": source}
    )
    try:
        await origin.halfway.wait()
        while not [path for path in node.files("incoming") if path.stat().st_size]:  # noqa: ASYNC110
            await asyncio.sleep(0)  # another process's file has no event
    finally:
        process.kill()
        await process.wait()
    assert node.files("contents") == []
    gate.set()
    node.restart()
    assert node.files("incoming") == []
    assert await node.get(origin.url()) == b"hello" * 100_000
