"""`stoker image` as it is seen in a terminal: the picture, and below it the bar."""

from __future__ import annotations

import base64
import io
import shlex
import sys
from pathlib import Path

from PIL import Image

from tests.cli.jobs.hosted_service import Service, serving
from tests.system.stack import SOURCE
from tests.tmux_terminal import Terminal, needs_tmux


@needs_tmux
def test_the_picture_stands_above_the_bar(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), (250, 10, 20)).save(file, "JPEG", quality=95)
    preview = {"preview": {"format": "jpeg", "data": base64.b64encode(file.getvalue()).decode()}}
    with serving(Service("text-to-image", {"seed": 7}, "image_url")) as service:
        service.events = [
            ("progress", {"output": {"step": 1, "steps": 2}}),
            ("chunk", {"output": preview}),
        ] * 2
        url = ["--url", service.url, "-o", "out.png"]
        command = [sys.executable, "-P", "-m", "stoker.cli", "image", "a lighthouse", *url]
        stays = ["sh", "-c", f"{shlex.join(command)}; read _"]  # tmux scrolls up the screen of one that ended
        env = {"PYTHONPATH": str(SOURCE), "STOKER_API_KEY": "sk_1_2", "COLORTERM": "truecolor"}
        terminal = Terminal(tmp_path, tmp_path, stays, env)
        try:
            terminal.shows("out.png, seed 7")
            lines = terminal.screen().splitlines()
        finally:
            terminal.close()
    drawn = [number for number, line in enumerate(lines) if "▀" * 32 in line]
    assert drawn == list(range(16)), "one picture, which the second preview was drawn over"
    assert "\x1b[38;2;2" in lines[0], "in its own colours"
    assert "step" in lines[16]
    assert "2/2" in lines[16]
    assert (tmp_path / "out.png").exists()
