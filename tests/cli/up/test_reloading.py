"""`stoker up --reload`: what is read again, what is printed, and that a broken file changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from stoker.cli.up.reloading import Reloading
from stoker.control.config.config import load_config, to_endpoints
from stoker.control.rules.types import Endpoint

TOML = """
local_roots = ["handlers"]
[[endpoints]]
id = "a"
imageName = "local:handlers/a.py:handler"
"""


class Story:
    def __init__(self, folder: Path) -> None:
        (folder / "handlers").mkdir()
        self.handler, self.config = folder / "handlers" / "a.py", folder / "stoker.toml"
        self.handler.write_text("def handler(job): return 1\n")
        self.config.write_text(TOML)
        self.lines: list[str] = []
        self.restarted = asyncio.Event()
        self.reloading = Reloading(self.config, self.read, self.restarted.set, self.say)
        self.printed = asyncio.Event()

    def read(self) -> tuple[list[Endpoint], tuple[str, ...]]:
        found = load_config(self.config)
        return to_endpoints(found), found.local_roots

    def say(self, text: str) -> None:
        self.lines.append(text)
        self.printed.set()


async def test_an_edited_handler_and_an_edited_configuration_are_served(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.reloading.look_again()
    assert (story.lines, story.restarted.is_set()) == ([], False), "nothing has changed"
    story.handler.write_text("def handler(job): return 2\n")
    story.reloading.look_again()
    assert story.restarted.is_set()
    assert story.lines.pop().startswith("changed: the source of a; workers end their jobs before")
    story.config.write_text(TOML + "workersMax = 2\n")
    story.reloading.look_again()
    assert story.lines.pop().startswith("changed: stoker.toml;")


async def test_a_configuration_that_cannot_be_read_is_reported_and_the_old_one_serves_on(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path)
    for broken in ("[[endpoints", TOML + "workersMost = 2\n", TOML.replace("a.py", "none.py")):
        story.config.write_text(broken)
        story.reloading.look_again()
        assert story.lines.pop().endswith("; the old configuration stays in use")
    assert not story.restarted.is_set()
    story.config.write_text(TOML)
    story.reloading.look_again()
    assert not story.restarted.is_set(), "it is what serves"


async def test_a_folder_that_cannot_be_watched_is_reported(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.reloading._watch(tmp_path / "none", recursive=True)
    assert story.lines[0].startswith(f"changes in {tmp_path / 'none'} are not seen: ")


async def test_changes_are_seen_until_it_is_cancelled(tmp_path: Path) -> None:
    """A file is written again and again: the start of the watch is not visible."""
    story = Story(tmp_path)
    running = asyncio.create_task(story.reloading.run())
    for attempt in range(1000):
        story.handler.write_text(f"def handler(job): return {attempt}\n")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await story.restarted.wait()
                break
    assert story.restarted.is_set()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
