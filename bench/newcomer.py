"""Measures how long a newcomer waits for a picture of their own: from a fresh clone, by the commands of the
README, to a prompt that they typed into the page.

    python bench/newcomer.py [--demo] [--json bench/results/newcomer.json]

    clone      the repository into an empty folder
    set-up     make .venv: the virtual environment, with everything that it installs
    link       stoker up, until it prints the page's link
    page       the link opened in Chromium, until a prompt can be typed
    picture    Run pressed, until the picture is seen

With `--demo` it is `make demo` instead, whose link comes while its own pictures are made: set-up is a part of
`link` then. The limit is two minutes in all, on two cores that do nothing else; the exit status is 1 where it
is passed. Beside its seconds each part has the CPU time that it took: the seconds grow with what else the
machine does, and with the way to the packages, and the CPU time does not.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
from playwright.sync_api import expect, sync_playwright

sys.path.append(str(Path(__file__).parent))
from dispatch_services import ROOT
from measured_on import machine

sys.path.append(str(ROOT))
from tests.browser import CHROMIUM, LOOPBACK_ONLY

LIMIT_S = 120.0
PATIENCE_S = 900.0
"""For each part, on a machine that does much else."""

PROMPT = "a red boat on a lake"
LINK = re.compile(rb"page  (http://[!-~]+/sign-in\?token=[A-Za-z0-9_-]+)")


def used_s() -> float:
    """Returns the CPU time of all processes below this one, those that have ended too, in seconds."""
    ended = os.times()
    used = ended.children_user + ended.children_system
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            used += sum(process.cpu_times()[:4])
    return used


class Watch:
    """A stopwatch of parts that follow one another."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, float]] = {}
        self._since = time.monotonic(), used_s()

    def ends(self, part: str) -> None:
        now = time.monotonic(), used_s()
        took, used = (round(after - before, 2) for after, before in zip(now, self._since, strict=True))
        self.parts[part] = {"seconds": took, "cpu_s": used}
        self._since = now
        print(f"{part:8} {took:7.2f} s, {used:6.2f} s of CPU", flush=True)


def without_settings() -> dict[str, str]:
    """Returns the environment of somebody who has never set up Stoker."""
    ours = ("STOKER_", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def reads(terminal: int, printed: SimpleQueue[bytes]) -> None:
    """Reads all that is printed, to the end, as a terminal does: a program that it would not read from stands
    still. The end is an empty text."""
    with suppress(OSError):  # the other side is closed
        while piece := os.read(terminal, 65_536):
            printed.put(piece)
    printed.put(b"")


@contextmanager
def at_a_terminal(command: list[str], folder: Path) -> Iterator[SimpleQueue[bytes]]:
    """Runs the command at a terminal during the block, and ends it with Ctrl-C. Yields what it prints."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=without_settings(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    printed: SimpleQueue[bytes] = SimpleQueue()
    reader = threading.Thread(target=reads, args=(ours, printed))
    reader.start()
    try:
        yield printed
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE_S)
        reader.join(PATIENCE_S)
        os.close(ours)


def printed_link(printed: SimpleQueue[bytes]) -> str:
    """Returns the link that is printed there. Raises SystemExit with what was printed, where the command
    ends."""
    seen = b""
    while (found := LINK.search(seen)) is None:
        piece = printed.get(timeout=PATIENCE_S)
        if not piece:
            raise SystemExit(seen.decode(errors="replace"))
        seen += piece
    return found[1].decode()


def draw(link: str, watch: Watch) -> None:
    """Follows the link, and types a prompt, as somebody does who sees the page for the first time."""
    options = ["--no-sandbox", "--disable-dev-shm-usage", f"--host-resolver-rules={LOOPBACK_ONLY}"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        page = browser.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        expect.set_options(timeout=1000 * PATIENCE_S)
        page.goto(link)
        page.get_by_label("Prompt", exact=True).fill(PROMPT)
        watch.ends("page")
        page.get_by_role("button", name="Run").click()
        picture = page.locator("img[src*='X-Amz']").first
        expect(picture).to_be_visible()
        picture.evaluate("image => image.decode()")
        watch.ends("picture")
        browser.close()


def measure(folder: Path, *, demo: bool) -> dict[str, dict[str, float]]:
    """Returns what each part took, in an empty folder."""
    clone, watch = folder / "stoker", Watch()
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    watch.ends("clone")
    command = ["make", "demo"]
    if not demo:
        subprocess.run(["make", "-s", ".venv"], cwd=clone, env=without_settings(), check=True)
        watch.ends("set-up")
        command = [str(clone / ".venv/bin/stoker"), "up", "--port", "0"]
    with at_a_terminal(command, clone) as printed:
        link = printed_link(printed)
        watch.ends("link")
        draw(link, watch)
    return watch.parts


def summed(parts: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Returns the parts with their sum, the limit for that, and whether it was kept."""
    in_all = {name: round(sum(one[name] for one in parts.values()), 2) for name in ("seconds", "cpu_s")}
    within = in_all["seconds"] <= LIMIT_S
    return {"parts": parts, "in all": in_all, "limit_s": LIMIT_S, "within_limit": within}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demo", action="store_true", help="by make demo, and not by stoker up")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if CHROMIUM is None:
        raise SystemExit("there is no chromium here; on Debian: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        found = summed(measure(Path(folder), demo=options.demo))
    in_all = found["in all"]
    print(f"{in_all['seconds']} s in all, {in_all['cpu_s']} s of CPU; limit: {LIMIT_S:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine("newcomer.py"), **found}, indent=2) + "\n")
    if not found["within_limit"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
