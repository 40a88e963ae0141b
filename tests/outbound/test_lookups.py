"""Names that nobody answers for: neither other names nor the end of the process wait for them."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
from collections.abc import Sequence

import pytest

from stoker.outbound.errors import FetchFailed
from stoker.outbound.guard import FetchLimits, Guard
from stoker.outbound.lookups import Lookups
from stoker.outbound.wait_limits import LOOKUPS, Waiter

AT_ONCE = LOOKUPS.slots


class NameServer:
    """`look_up` answers for `good` names at once, and for all others when it is let `go`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.hanging = 0
        self.some_hang = threading.Event()

    def look_up(self, host: str, port: int) -> Sequence[str]:
        if not host.startswith("good"):
            self.hanging += 1
            self.some_hang.set()
            self.go.wait()
            self.hanging -= 1
        return ["192.0.2.1"]


async def test_names_of_one_account_that_nobody_answers_for_hold_no_other_account_up() -> None:
    names = NameServer()
    lookups = Lookups(names.look_up)
    lookups_running = [
        asyncio.create_task(lookups(f"{n}.slow.test", 80, Waiter("a"))) for n in range(3 * AT_ONCE)
    ]
    try:
        assert await lookups("good.test", 80, Waiter("b")) == ["192.0.2.1"]
        await asyncio.to_thread(names.some_hang.wait)
        assert names.hanging <= AT_ONCE // 2
        for task in lookups_running:
            task.cancel()
        await asyncio.wait(lookups_running)
        again = [asyncio.create_task(lookups(f"{n}.slower.test", 80, Waiter("a"))) for n in range(AT_ONCE)]
        assert await lookups("good.test", 80, Waiter("b")) == ["192.0.2.1"]
        assert names.hanging <= AT_ONCE // 2, "who leaves makes no room for another thread that hangs"
    finally:
        names.go.set()
    await asyncio.wait(again)


async def test_one_name_that_nobody_answers_for_holds_no_other_name_of_its_account_up() -> None:
    names = NameServer()
    lookups = Lookups(names.look_up)
    lookups_running = [asyncio.create_task(lookups("slow.test", 80, Waiter("a"))) for _ in range(3 * AT_ONCE)]
    try:
        assert await lookups("good.test", 80, Waiter("a")) == ["192.0.2.1"]
    finally:
        names.go.set()
    await asyncio.wait(lookups_running)


def test_a_name_that_nobody_answers_for_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    go, looking = threading.Event(), list[str]()

    def hangs(host: str, *_: object, **__: object) -> object:
        looking.append(host)
        go.wait(60)
        looking.clear()
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", hangs)

    async def story() -> None:
        while not looking:  # the time may be over before the name server is asked
            with pytest.raises(FetchFailed, match=r"within 0\.05 s"):
                await Guard().fetch_to("http://slow.test/", io.BytesIO(), FetchLimits(timeout_s=0.05))

    asyncio.run(story())
    assert set(looking) in ({"slow.test"}, {b"slow.test"}), "the end of the loop waited for the name server"
    go.set()
    while looking:
        pass
