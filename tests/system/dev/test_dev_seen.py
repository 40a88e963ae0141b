"""What a user sees of `stoker dev`: in a terminal, through tmux, and at /docs, in a browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.browser import CHROMIUM, in_browser
from tests.cli.dev.written_apps import BALANCED, ONE, app
from tests.system.dev.dev_server import FUNCTIONS, environment, serving
from tests.system.stack import START_S, Stack, running
from tests.tmux_terminal import Terminal, needs_tmux

VARIABLES = ("STOKER_URL", "STOKER_API_KEY", "PYTHONPATH")

LOUD = '''
import pathlib
import threading
from stoker.client import endpoint
from stoker.worker.functions import progress

@endpoint(name="loud", cpu=True)
def loud(until: str = "") -> str:
    """Waits and fails."""
    print("a line of the worker")
    progress({"step": 1})
    while not pathlib.Path(until).exists():
        threading.Event().wait(0.01)
    raise ValueError("it is over")
'''


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("platform"), FUNCTIONS) as stack:
        yield stack


@needs_tmux
@pytest.mark.slow
def test_a_terminal_shows_the_table_the_progress_and_the_error(platform: Stack, tmp_path: Path) -> None:
    folder = app(tmp_path / "app", loud=LOUD, lb=BALANCED)
    port = 18_950
    command = [sys.executable, "-P", "-m", "stoker.cli", "dev", "-p", str(port)]
    env = {name: value for name, value in environment(platform).items() if name in VARIABLES}
    terminal = Terminal(tmp_path, folder, command, env)
    try:
        terminal.shows("documentation: ")
        screen = terminal.screen()
        for text in (
            "live-loud",
            "POST /loud/runsync",
            "Waits and fails.",
            "GET /lb/items/{id}",
            "One item.",
        ):
            assert text in screen
        (url,) = [word for word in screen.split() if word.startswith("http://localhost:")][:1]
        until_file = tmp_path / "over"
        with httpx2.Client(base_url=url, timeout=START_S, trust_env=False) as http:
            calling = subprocess.Popen(
                ["curl", "-s", f"{url}/loud/runsync", "-d", f'{{"input": {{"until": "{until_file}"}}}}'],
                stdout=subprocess.PIPE,
            )
            with calling:
                terminal.shows("live-loud a line of the worker")
                terminal.shows('live-loud progress {"step": 1}')
                assert "it is over" not in terminal.screen()
                until_file.touch()
                terminal.shows("ValueError: it is over")
                terminal.shows('File "loud.py", line 14, in loud')
            assert http.get("/ping").status_code == 200
        assert "\x1b[31m" in terminal.screen(), "errors are red"
        (folder / "loud.py").write_text(LOUD.replace("def loud(", "def loud(("))
        terminal.shows("loud.py, line 8: syntax error")
        terminal.press("C-c")
        terminal.ends()
    finally:
        terminal.close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to show the page in")
async def test_a_browser_shows_the_explorer_without_a_packet_off_loopback(
    platform: Stack, tmp_path: Path
) -> None:
    with serving(
        app(tmp_path / "app", one=ONE, lb=BALANCED), "--host", "127.0.0.1", stack=platform
    ) as server:
        page, connected = await in_browser(f"{server.http.base_url}/docs", tmp_path)
    assert connected == {"127.0.0.1"}
    for text in ("/one/runsync", "Says it louder.", "/lb/items/{id}", "One item."):
        assert text in page
    assert "Unable to render" not in page
