"""Environments of dependencies: made once, shared, bounded, and never used half-made."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import numpy
import pytest

from stoker.worker.errors import HandlerError
from stoker.worker.functions import install, runner
from stoker.worker.functions.environments import Environment, Environments, cache_folder, name_of
from stoker.worker.functions.handler import Functions
from stoker.worker.functions.install import InstallFailed, Log, failure, in_container
from tests.worker.functions.function_apps import App, run, write_wheel

Live = Callable[..., Awaitable[Functions]]


class Making:
    """Makes a folder in place of an environment; `hold` keeps it from ending."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.began, self.hold = asyncio.Event(), asyncio.Event()
        self.hold.set()

    async def __call__(self, folder: Path, dependencies: Sequence[str], log: Callable[[str], None]) -> None:
        (folder / "bin").mkdir(parents=True)
        self.made.append(dependencies[0])
        self.began.set()
        await self.hold.wait()
        if dependencies[0] == "broken":
            raise InstallFailed("broken")


def silent(line: str) -> None: ...


class Cache(Environments):
    """Closes what it gave when it is closed."""

    def __init__(self, folder: Path, making: Making, kept: int = 8) -> None:
        super().__init__(folder, kept=kept, make=making)
        self.given: list[Environment] = []

    async def get(self, dependencies: Sequence[str], log: Log) -> Environment:
        self.given.append(await super().get(dependencies, log))
        return self.given[-1]

    def close(self) -> None:
        for one in self.given:
            one.close()


Opened = Callable[[Cache], Cache]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Closes a cache with the test."""
    with contextlib.ExitStack() as stack:

        def keep(cache: Cache) -> Cache:
            return stack.enter_context(contextlib.closing(cache))

        yield keep


async def test_one_is_made_once_and_used_again(tmp_path: Path, opened: Opened) -> None:
    making = Making()
    cache = opened(Cache(tmp_path / "e", making))
    first, second = await cache.get(["a", "b"], silent), await cache.get(["b", "a", "a"], silent)
    assert (first.python, making.made) == (second.python, ["a"])
    assert (await cache.get(["c"], silent)).python != first.python
    assert (await cache.get([], silent)).python == install.sys.executable


async def test_two_workers_make_one_between_them(tmp_path: Path, opened: Opened) -> None:
    making, lines = Making(), []
    making.hold.clear()
    cache = opened(Cache(tmp_path, making))
    one = asyncio.create_task(cache.get(["a"], silent))
    await making.began.wait()
    told = asyncio.Event()

    def log(line: str) -> None:
        lines.append(line)
        told.set()

    other = asyncio.create_task(cache.get(["a"], log))
    await told.wait()
    making.hold.set()
    assert (await one).python == (await other).python
    assert making.made == ["a"]
    assert "another worker" in lines[0]


async def test_one_that_was_not_finished_is_made_anew(tmp_path: Path, opened: Opened) -> None:
    making = Making()
    cache = opened(Cache(tmp_path, making))
    with pytest.raises(InstallFailed):
        await cache.get(["broken"], silent)
    making.hold.clear()
    making.began.clear()
    task = asyncio.create_task(cache.get(["a"], silent))
    await making.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [Path(name).suffix for name in os.listdir(tmp_path)] == [".lock", ".lock"]
    left = tmp_path / name_of(["a"], os.environ)
    (left / "bin" / "left").mkdir(parents=True)  # by a worker that was killed
    making.hold.set()
    made = await cache.get(["a"], silent)
    assert Path(made.python).is_relative_to(left)
    assert not (left / "bin" / "left").exists()


async def test_old_ones_are_removed_unless_they_are_used(tmp_path: Path, opened: Opened) -> None:
    cache = opened(Cache(tmp_path, Making(), kept=2))
    used = await cache.get(["used"], silent)
    for n, name in enumerate("abcd"):
        made = await cache.get([name], silent)
        os.utime(Path(made.python).parents[1] / "complete", (n + 1, n + 1))
        made.close()
    os.utime(Path(used.python).parents[1] / "complete", (0, 0))
    last = await cache.get(["e"], silent)
    there = {name for name in os.listdir(tmp_path) if not name.endswith(".lock")}
    assert there == {Path(one.python).parents[1].name for one in (used, last)}
    used.close()


async def test_what_killed_workers_left_is_removed_unless_it_is_made_now(
    tmp_path: Path, opened: Opened
) -> None:
    making = Making()
    (tmp_path / ("0" * 32) / "bin").mkdir(parents=True)
    making.hold.clear()
    cache, other = opened(Cache(tmp_path, making)), opened(Cache(tmp_path, Making()))
    task = asyncio.create_task(cache.get(["made now"], silent))
    await making.began.wait()
    done = await other.get(["a"], silent)
    making.hold.set()
    there = {name for name in os.listdir(tmp_path) if not name.endswith(".lock")}
    assert there == {Path(one.python).parents[1].name for one in (done, await task)}


async def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o777)
    with pytest.raises(HandlerError, match="no other may write to it"):
        await Environments(tmp_path, make=Making()).get(["a"], silent)


def test_the_name_is_of_all_that_matters() -> None:
    names = {name_of(["a"], {}), name_of(["a"], {"PIP_INDEX_URL": "x"}), name_of(["a>1"], {})}
    assert len(names) == 3
    assert name_of(["a", "b"], {"HOME": "x"}) == name_of(["b", "a"], {})
    assert cache_folder({"STOKER_ENVIRONMENTS": "/x"}) == Path("/x")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/stoker-environments")


def test_a_failure_without_a_network_says_so() -> None:
    lines = "WARNING: Failed to establish a new connection: [Errno -3]\nERROR: No matching distribution"
    assert "no access to pypi.org" in failure(lines, {})
    shown = failure(lines, {"PIP_INDEX_URL": "https://me:secret@mirror.example/simple"})
    assert "no access to mirror.example" in shown
    assert "secret" not in shown
    assert failure("x\nERROR: a\nERROR: No matching distribution\n", {}) == "No matching distribution"
    assert failure("Killed", {}) == "pip failed"


def test_only_a_worker_in_a_container_of_its_own_is_in_one(tmp_path: Path) -> None:
    assert not in_container({}, tmp_path)
    (tmp_path / ".dockerenv").touch()
    assert in_container({}, tmp_path)
    assert not in_container({"STOKER_AGENT": "/data"}, tmp_path)


async def test_system_dependencies_outside_a_container_are_a_sentence(
    live: Functions, tmp_path: Path
) -> None:
    app = App.write(
        tmp_path / "app",
        {
            "app.py": "from stoker.client import endpoint\n"
            "@endpoint(system_dependencies=['ffmpeg'])\ndef f(): ...\n"
        },
    )
    os.environ["STOKER_AGENT"] = "/data"
    try:
        error = str((await run(live, app.request("f"))).error)
    finally:
        del os.environ["STOKER_AGENT"]
    assert "system_dependencies (ffmpeg) are installed in containers only" in error


async def test_system_dependencies_are_not_installed_again_for_changed_code(
    live: Functions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[str] = []

    async def install_them(packages: Sequence[str], log: Log) -> None:
        installed.extend(packages)

    monkeypatch.setattr(runner, "install_system_packages", install_them)
    for returned, packages in ((1, ["a"]), (2, ["a"]), (3, ["a", "b"])):
        source = (
            "from stoker.client import endpoint\n"
            f"@endpoint(system_dependencies={packages})\ndef f(): return {returned}\n"
        )
        app = App.write(tmp_path / "app", {"app.py": source})
        assert (await run(live, app.request("f"))).output == returned
    assert installed == ["a", "b"]


# -- with pip, from a folder of wheels


def importing(requirement: str, module: str) -> dict[str, str]:
    return {
        "app.py": "from stoker.client import endpoint\n"
        f"@endpoint(dependencies=[{requirement!r}])\ndef version():\n"
        f"    import {module}, sys\n    return [{module}.VERSION, sys.executable]\n"
    }


def wheels(folder: Path) -> dict[str, str]:
    for version in ("1.0", "2.0"):
        write_wheel(folder, "stokertestwheel", version, f"VERSION = {version!r}\n")
    return {"STOKER_FUNCTIONS_LIVE": "1", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


async def test_dependencies_are_installed_as_they_are_required(functions: Live, tmp_path: Path) -> None:
    handler = await functions(**wheels(tmp_path / "wheels"))
    app = App.write(tmp_path / "app", importing("stokertestwheel<2", "stokertestwheel"))
    first = await run(handler, app.request("version"))
    assert first.output[0] == "1.0", first.error
    assert any("Installing" in one["line"] for one in first.progress)
    assert {one["phase"] for one in first.progress} == {"installing"}
    again = await run(handler, app.request("version"))
    assert (again.output, again.progress) == (first.output, [])
    App.write(tmp_path / "app", importing("stokertestwheel", "stokertestwheel"))
    assert (await run(handler, app.request("version"))).output[0] == "2.0"


async def test_a_dependency_that_is_not_there_shows_the_log(functions: Live, tmp_path: Path) -> None:
    handler = await functions(**wheels(tmp_path / "wheels"))
    app = App.write(tmp_path / "app", importing("stokertestwheel>=3", "stokertestwheel"))
    error = str((await run(handler, app.request("version"))).error)
    assert error.startswith(
        "the dependencies stokertestwheel>=3 could not be installed: No matching distribution"
    )
    assert "(from versions: 1.0, 2.0)" in error


async def test_a_token_in_a_requirement_is_not_in_the_error(functions: Live, tmp_path: Path) -> None:
    handler = await functions(**wheels(tmp_path / "wheels"))
    wanted = "stokertestwheel @ https://me:secret@127.0.0.1:1/stokertestwheel-1.0-py3-none-any.whl"
    app = App.write(tmp_path / "app", importing(wanted, "stokertestwheel"))
    error = str((await run(handler, app.request("version"))).error)
    assert "stokertestwheel @ https://****@127.0.0.1:1/" in error
    assert "secret" not in error


async def test_what_the_worker_has_is_not_installed_again(functions: Live, tmp_path: Path) -> None:
    handler = await functions(**wheels(tmp_path / "wheels"))
    files = importing("numpy", "numpy")
    app = App.write(tmp_path / "app", {"app.py": files["app.py"].replace("VERSION", "__version__")})
    job = await run(handler, app.request("version"))
    assert job.output[0] == numpy.__version__
    assert any("already satisfied: numpy" in one["line"] for one in job.progress)


@pytest.mark.slow
async def test_an_interpreter_without_pip_gets_it_in_the_environment(
    functions: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "_has_pip", lambda: False)
    handler = await functions(**wheels(tmp_path / "wheels"))
    app = App.write(tmp_path / "app", importing("stokertestwheel", "stokertestwheel"))
    job = await run(handler, app.request("version"))
    assert job.output[0] == "2.0"
