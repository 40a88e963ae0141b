"""The control process as a whole, in this process: what ends it besides a signal."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvicorn

from stoker.cli.control_process import ControlOptions, run_control
from stoker.cli.errors import CliError
from stoker.control.api import server


@pytest.mark.parametrize(
    ("error", "why"), [(None, "nothing told it to"), (OSError("too many open files"), "too many open files")]
)
async def test_it_ends_when_its_http_server_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None, why: str
) -> None:
    async def ends_at_once(self: server._Uvicorn) -> None:
        self.ready.set()

    async def shutdown(self: uvicorn.Server, sockets: object = None) -> None:
        await real_shutdown(self, sockets)  # type: ignore[arg-type]
        if error is not None:
            raise error

    real_shutdown = uvicorn.Server.shutdown
    monkeypatch.setattr(server._Uvicorn, "main_loop", ends_at_once)
    monkeypatch.setattr(server._Uvicorn, "shutdown", shutdown)
    options = ControlOptions(tmp_path, None, "127.0.0.1", 0, "127.0.0.1", 0)
    with pytest.raises(CliError, match=f"^the HTTP server ended: {why}$"):
        await run_control(options, {})
