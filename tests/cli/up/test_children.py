"""Real processes under the supervisor: started in order, read, started again, stopped, none left."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest

from stoker.cli.consoles import lasting_console
from stoker.cli.up import supervisor
from stoker.cli.up.children import AllFacts, Children, Launch, last_line

PART = """
import fcntl, json, os, signal, sys
stop = signal.sigwait
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("started", flush=True)
fd = int(sys.argv[sys.argv.index("--ready-fd") + 1])
lead = open(sys.argv[2] + "." + sys.argv[1].split()[0], "a")
if "next" in sys.argv[1].split():
    os.write(fd, b'{"waits": true}\\n')
fcntl.flock(lead, fcntl.LOCK_EX)
os.write(fd, json.dumps({"ready": True, "pid": os.getpid(), "told": sys.argv[1]}).encode() + b"\\n")
os.close(fd)
stop([signal.SIGTERM])
with open(sys.argv[2], "a") as file:
    file.write(sys.argv[1] + "\\n")
"""
SLOW = "import signal; signal.pause()"
FAILS = "import sys; sys.exit('port 8000 is in use')"
DEAF = PART.replace("stop([signal.SIGTERM])", "stop([signal.SIGUSR1])")


class Story:
    """Two processes, and what was reported of them."""

    def __init__(self, folder: Path, print_line: Callable[[str], None] | None = None, **scripts: str) -> None:
        self.folder = folder
        self.scripts = {"control": PART, "agent": PART, **scripts}
        self.lines: list[str] = []
        self.ready: asyncio.Queue[AllFacts] = asyncio.Queue()
        self.news: asyncio.Queue[Any] = asyncio.Queue()
        self.children = Children(
            ("control", "agent"),
            self.launch,
            print_line or self.lines.append,
            lambda facts: self.ready.put_nowait(dict(facts)),
            self.news.put_nowait,
        )

    def launch(self, name: str, facts: AllFacts, successor: bool) -> Launch:
        reported = f"{name} {'next ' if successor else ''}after {' '.join(facts)}".strip()
        ended = str(self.folder / "ended")
        argv = (sys.executable, "-I", "-c", self.scripts[name], reported, ended)
        return Launch(argv, dict(os.environ), self.folder / f"{name}.log")

    def ended(self) -> list[str]:
        return (self.folder / "ended").read_text().split("\n")[:-1]


def exists(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


REPORTS = PART.replace(
    "os.close(fd)",
    "os.write(fd, b'{\"n\": 1}\\n{\"n\":'); os.write(fd, b' 2}\\n'); os.close(fd)",
)


async def test_lines_that_a_child_sends_after_it_was_ready_are_received(tmp_path: Path) -> None:
    story = Story(tmp_path, agent=REPORTS)
    running = asyncio.create_task(story.children.run())
    await story.ready.get()
    assert [await story.news.get(), await story.news.get()] == [{"n": 1}, {"n": 2}]
    story.children.stop()
    assert await running == 0


async def test_a_child_is_restarted_and_the_others_stay(tmp_path: Path) -> None:
    story = Story(tmp_path)
    running = asyncio.create_task(story.children.run())
    first = await story.ready.get()
    story.children.restart("control")
    second = await story.ready.get()
    assert second["control"]["pid"] != first["control"]["pid"]
    assert second["control"]["told"] == "control next after control agent"
    assert second["agent"]["pid"] == first["agent"]["pid"]
    assert story.lines == []
    story.children.stop()
    assert await running == 0


async def test_a_child_stays_where_its_successor_does_not_start(tmp_path: Path) -> None:
    story = Story(tmp_path)
    running = asyncio.create_task(story.children.run())
    first = await story.ready.get()
    story.scripts["control"] = FAILS
    story.children.restart("control")
    while not story.lines:  # noqa: ASYNC110 - until the supervisor has heard of its end
        await asyncio.sleep(0)
    assert story.lines == [
        "the next control did not start: exit status 1; the last line of control.log: port 8000 is in use;"
        " the one before it goes on"
    ]
    assert exists(first["control"]["pid"])
    story.children.stop()
    assert await running == 0


async def test_a_stop_leaves_no_successor(tmp_path: Path) -> None:
    story = Story(tmp_path)
    running = asyncio.create_task(story.children.run())
    await story.ready.get()
    story.scripts["control"] = SLOW
    story.children.restart("control")
    while not (loading := story.children._successors.get("control")):  # noqa: ASYNC110
        await asyncio.sleep(0)
    story.children.stop()
    assert await running == 0
    assert loading.process.returncode == -signal.SIGKILL
    assert not exists(str(loading.process.pid))


async def test_they_start_in_order_and_one_stop_ends_them_in_reverse(tmp_path: Path) -> None:
    story = Story(tmp_path)
    running = asyncio.create_task(story.children.run())
    facts = await story.ready.get()
    assert facts["agent"]["told"] == "agent after control"
    story.children.stop()
    assert await running == 0
    assert [line.split()[0] for line in story.ended()] == ["agent", "control"]
    assert not any(exists(part["pid"]) for part in facts.values())


async def test_one_that_dies_is_started_again_and_its_last_line_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_BACKOFF_S", 0.001)
    story = Story(tmp_path)
    running = asyncio.create_task(story.children.run())
    facts = await story.ready.get()
    os.kill(int(facts["control"]["pid"]), signal.SIGKILL)
    again = await story.ready.get()
    assert again["control"]["told"] == "control after control agent"
    assert again["agent"]["pid"] == facts["agent"]["pid"], "the agent was left alone"
    (printed,) = story.lines
    assert "control ended unexpectedly: killed by SIGKILL" in printed
    assert "the last line of control.log: started" in printed
    story.children.stop()
    assert await running == 0


async def test_one_that_a_real_time_signal_ends_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has no name for most of them."""
    monkeypatch.setattr(supervisor, "FIRST_BACKOFF_S", 0.001)
    story = Story(tmp_path)
    running = asyncio.create_task(story.children.run())
    facts = await story.ready.get()
    os.kill(int(facts["control"]["pid"]), signal.SIGRTMIN + 1)
    await story.ready.get()
    assert f"control ended unexpectedly: killed by signal {signal.SIGRTMIN + 1}; " in story.lines[0]
    story.children.stop()
    assert await running == 0


def full_disk() -> TextIO:
    return open("/dev/full", "w")


def broken_pipe() -> TextIO:
    read, write = os.pipe()
    os.close(read)
    return open(write, "w")


def closed() -> TextIO:
    file = io.StringIO()
    file.close()
    return file


@pytest.mark.parametrize("output", [full_disk, broken_pipe, closed])
async def test_a_terminal_that_is_gone_does_not_end_what_it_supervises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: Callable[[], TextIO]
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_BACKOFF_S", 0.001)
    file = output()
    console = lasting_console(file=file)
    story = Story(tmp_path, print_line=console.print)
    running = asyncio.create_task(story.children.run())
    facts = await story.ready.get()
    os.kill(int(facts["control"]["pid"]), signal.SIGKILL)
    await story.ready.get()
    console.print("everything runs again")
    story.children.stop()
    assert await running == 0
    with contextlib.suppress(OSError):  # what could not be written is tried once more
        file.close()


@pytest.mark.parametrize("moved", ["control.log.old", None])
async def test_one_whose_log_was_moved_is_started_again_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: str | None
) -> None:
    """As by logrotate."""
    monkeypatch.setattr(supervisor, "FIRST_BACKOFF_S", 0.001)
    story = Story(tmp_path)
    running = asyncio.create_task(story.children.run())
    facts = await story.ready.get()
    log = tmp_path / "control.log"
    log.rename(log.with_name(moved)) if moved else log.unlink()
    os.kill(int(facts["control"]["pid"]), signal.SIGKILL)
    again = await story.ready.get()
    assert again["agent"]["pid"] == facts["agent"]["pid"]
    assert story.lines[0].startswith("control ended unexpectedly: killed by SIGKILL; it starts again in ")
    story.children.stop()
    assert await running == 0


async def test_one_whose_log_cannot_be_opened_is_started_again_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_BACKOFF_S", 0.001)
    story = Story(tmp_path)
    running = asyncio.create_task(story.children.run())
    facts = await story.ready.get()
    (tmp_path / "control.log").unlink()
    (tmp_path / "control.log").mkdir()
    os.kill(int(facts["control"]["pid"]), signal.SIGKILL)
    await story.ready.get()
    story.children.stop()
    assert await running == 0


async def test_one_that_never_starts_ends_all_with_its_last_line(tmp_path: Path) -> None:
    story = Story(tmp_path, agent=FAILS)
    assert await story.children.run() == 1
    assert story.lines == [
        "agent did not start: exit status 1; the last line of agent.log: port 8000 is in use"
    ]
    assert [line.split()[0] for line in story.ended()] == ["control"]


async def test_a_second_stop_kills_the_deaf(tmp_path: Path) -> None:
    story = Story(tmp_path, agent=DEAF)
    running = asyncio.create_task(story.children.run())
    facts = await story.ready.get()
    story.children.stop()
    story.children.stop()
    assert await running == 130
    assert not any(exists(part["pid"]) for part in facts.values())


async def test_an_error_of_our_own_leaves_nothing_running(tmp_path: Path) -> None:
    story = Story(tmp_path)
    running = asyncio.create_task(story.children.run())
    facts = await story.ready.get()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(exists(part["pid"]) for part in facts.values())


def test_the_last_line_that_is_not_blank(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n" + "x" * 20_000 + "\nError: it broke\n\n   \n")
    assert last_line(log) == "Error: it broke"
    log.write_text("")
    assert last_line(log) == ""
