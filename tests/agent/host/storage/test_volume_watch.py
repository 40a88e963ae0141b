"""Network volumes are measured now and then, and go when they are told to and nobody is in them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from stoker.agent.host.storage.volume_watch import ABSENT_S, EVERY_S, FIRST_S, IN_USE_S, VolumeWatch
from stoker.wire.messages import Desired, FromControl, PodSpec, VolumeSpec, VolumeUsed


class Folders:
    """`held` are those that there are, in bytes. A look takes `takes` seconds."""

    def __init__(self, **held: int) -> None:
        self.held: dict[str, int | None] = dict(held)
        self.takes = 0.0
        self.looks: list[tuple[float, str]] = []
        self.cleared = 0
        self.broken = False

    async def clear(self) -> None:
        self.cleared += 1

    async def measure(self, volume: str) -> int | None:
        self.looks.append((now(), volume))
        await asyncio.sleep(self.takes)
        if self.broken:
            raise OSError(5, "Input/output error")
        return self.held.get(volume)

    async def remove(self, volume: str) -> bool:
        self.looks.append((now(), f"-{volume}"))
        if self.broken:
            raise OSError(13, "Permission denied")
        await asyncio.sleep(0)
        return self.held.pop(volume, None) is not None


def now() -> float:
    return asyncio.get_running_loop().time()


class Watched:
    """A watch that runs."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.used: set[str] = set()
        self.reports: list[VolumeUsed] = []
        self.watch = VolumeWatch(folders, lambda: self.used, self.reports.append)

    def desire(self, *specs: VolumeSpec, of_pods: tuple[str, ...] = ()) -> None:
        self.watch.desire(specs, of_pods)

    async def __aenter__(self) -> Watched:
        self.task = asyncio.create_task(self.watch.run())
        await asyncio.sleep(0.1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


V1, V2 = VolumeSpec("v1", 100), VolumeSpec("v2", 100)
GONE = VolumeSpec("v1", 100, gone=True)


def test_it_is_measured_soon_and_then_seldom(in_time) -> None:
    async def story() -> None:
        async with Watched(Folders(v1=7, v2=8)) as it:
            began = now()
            it.desire(V1)
            await asyncio.sleep(10)
            it.desire(V1, V2)  # the known one keeps its time
            await asyncio.sleep(2 * EVERY_S)
            looks = [(at - began, name) for at, name in it.folders.looks]
            assert looks[0] == (FIRST_S, "v1")
            assert looks[1] == (10 + FIRST_S, "v2")
            assert looks[2:4] == [(FIRST_S + EVERY_S, "v1"), (10 + FIRST_S + EVERY_S, "v2")]
            assert it.reports[:2] == [VolumeUsed("v1", 7), VolumeUsed("v2", 8)]
            assert it.folders.cleared == 1

    in_time(story())


def test_a_long_look_is_seldom_repeated(in_time) -> None:
    async def story() -> None:
        async with Watched(Folders(v1=7)) as it:
            it.folders.takes = 100.0
            it.desire(V1)
            await asyncio.sleep(10_000)
            times = [at for at, _ in it.folders.looks]
            assert min(b - a for a, b in pairwise(times)) >= 2000

    in_time(story())


def test_what_is_not_here_is_not_reported(in_time) -> None:
    async def story() -> None:
        async with Watched(Folders()) as it:
            it.desire(V1)
            await asyncio.sleep(2 * ABSENT_S)
            assert len(it.folders.looks) == 2
            assert it.reports == []
            it.folders.held["v1"] = 7
            await asyncio.sleep(ABSENT_S + 1)
            assert it.reports == [VolumeUsed("v1", 7)]

    in_time(story())


def test_one_that_is_deleted_is_removed_and_reported_once(in_time) -> None:
    async def story() -> None:
        async with Watched(Folders(v1=7, v2=8)) as it:
            it.desire(GONE, V2)
            await asyncio.sleep(FIRST_S + 1)
            assert VolumeUsed("v1", 0, gone=True) in it.reports
            it.desire(GONE, V2)
            await asyncio.sleep(3 * EVERY_S)
            assert [one for one in it.reports if one.volume == "v1"] == [VolumeUsed("v1", 0, gone=True)]
            assert it.folders.held == {"v2": 8}

    in_time(story())


def test_one_that_somebody_is_in_waits_for_its_end(in_time) -> None:
    async def story() -> None:
        async with Watched(Folders(v1=7)) as it:
            it.used = {"v1"}
            it.desire(GONE)
            await asyncio.sleep(100)
            it.used = set()
            it.desire(GONE, of_pods=("v1",))
            await asyncio.sleep(100)
            assert it.folders.held == {"v1": 7}
            it.desire(GONE, of_pods=("",))
            await asyncio.sleep(IN_USE_S + 1)
            assert it.folders.held == {}
            assert it.reports == [VolumeUsed("v1", 0, gone=True)]

    in_time(story())


def test_it_goes_while_it_is_measured(in_time) -> None:
    async def story() -> None:
        async with Watched(Folders(v1=7)) as it:
            it.folders.takes = 50.0
            it.desire(V1)
            await asyncio.sleep(FIRST_S + 1)
            it.desire(GONE)
            await asyncio.sleep(60)
            assert it.folders.held == {}

    in_time(story())


def test_what_is_named_no_more_is_left_alone(in_time) -> None:
    async def story() -> None:
        async with Watched(Folders(v1=7)) as it:
            it.folders.takes = 5.0
            it.desire(V1)
            await asyncio.sleep(FIRST_S + 1)
            it.desire()
            await asyncio.sleep(3 * EVERY_S)
            assert len(it.folders.looks) == 1
            assert it.folders.held == {"v1": 7}
            it.desire(V1)
            await asyncio.sleep(FIRST_S + 1)
            assert len(it.folders.looks) == 2

    in_time(story())


def test_an_error_of_the_disk_is_tried_again(in_time) -> None:
    async def story() -> None:
        async with Watched(Folders(v1=7, v2=8)) as it:
            it.folders.broken = True
            it.desire(GONE, V2)
            await asyncio.sleep(FIRST_S + 1)
            assert it.reports == []
            it.folders.broken = False
            await asyncio.sleep(EVERY_S)
            assert set(it.reports) == {VolumeUsed("v1", 0, gone=True), VolumeUsed("v2", 8)}

    in_time(story())


def test_over_a_session_with_workers_and_pods(play, a_worker) -> None:
    folders = Folders(v1=7, v2=8)

    async def story(host) -> None:
        await host.control.ready(a_worker(volume="v1"))
        pod = PodSpec("p1", 1, "EXITED", "image", volume="v2")
        v2 = VolumeSpec("v2", 1, gone=True)
        desired = Desired(10**9, host.control.workers, (pod,), (GONE, v2))
        await host.control.say(FromControl(desired=desired))
        await asyncio.sleep(60)
        assert folders.held == {"v1": 7, "v2": 8}
        await host.control.say(FromControl(desired=Desired(10**9 + 1, (), (), (GONE, v2))))
        await host.control.until(lambda: len(host.control.bodies(VolumeUsed)) == 2)
        assert folders.held == {}

    play(story, volumes=folders)
