"""The control process as a whole, in this process: what ends it besides a signal."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from msgspec.structs import replace

from stoker.agent.link.grpc_stream import ConnectFailed, connect
from stoker.cli.control import process
from stoker.cli.control.declared import tls_files
from stoker.cli.control.process import run_control
from stoker.cli.daemons.options import ControlOptions
from stoker.cli.errors import CliError
from stoker.control.config.config import load_config
from stoker.control.config.tls import TlsFiles
from stoker.control.http.health.checks import EMBEDDED_BEYOND
from stoker.control.http.server import server
from stoker.control.nodes.grpc_stream import GrpcServer
from stoker.control.plane import Plane
from stoker.control.store.database.opening import StoreError
from tests.certificates import make_certificate


@pytest.mark.parametrize(
    ("error", "why"), [(None, "without a signal"), (OSError("too many open files"), "too many open files")]
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


@pytest.fixture
async def facts(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[dict[str, str]]:
    reported: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    monkeypatch.setattr(process, "announce", lambda facts, fd: reported.put_nowait(dict(facts)))
    return reported


@pytest.mark.parametrize("grpc_plain", [False, True])
async def test_a_certificate_in_the_file_is_used_on_both_ports(
    tmp_path: Path, facts: asyncio.Queue[dict[str, str]], grpc_plain: bool
) -> None:
    made = make_certificate(tmp_path)
    config = tmp_path / "stoker.toml"
    config.write_text('[tls]\ncert = "cert.pem"\nkey = "key.pem"\n')
    options = ControlOptions(tmp_path / "data", config, "127.0.0.1", 0, "127.0.0.1", 0, grpc_plain=grpc_plain)
    running = asyncio.create_task(run_control(options, {"STOKER_JOIN_TOKEN": "jt-of-the-test"}))
    reported = asyncio.create_task(facts.get())
    await asyncio.wait((running, reported), return_when=asyncio.FIRST_COMPLETED)
    at = reported.result()
    async with httpx2.AsyncClient(
        verify=ssl.create_default_context(cadata=made.pem.decode()), timeout=60
    ) as client:
        assert at["http"].startswith("https://")
        assert (await client.get(f"{at['http']}/ping")).status_code == 200
    stream = await connect(at["grpc"], "jt-of-the-test", ca=None if grpc_plain else made.pem)
    stream.end()
    await stream.closed()
    if not grpc_plain:
        with pytest.raises(ConnectFailed):
            await connect(at["grpc"], "jt-of-the-test")
    running.cancel()
    await asyncio.wait((running,))


@pytest.mark.parametrize(("host", "warns"), [("0.0.0.0", True), ("127.0.0.1", False)])
async def test_an_embedded_store_that_other_hosts_do_not_reach_is_warned_of(
    tmp_path: Path,
    facts: asyncio.Queue[dict[str, str]],
    caplog: pytest.LogCaptureFixture,
    host: str,
    warns: bool,
) -> None:
    made = make_certificate(tmp_path)
    files = {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}
    options = _options(tmp_path / "data", grpc_host=host, **files)
    running = asyncio.create_task(run_control(options, {}))
    reported = asyncio.create_task(facts.get())
    await asyncio.wait((running, reported), return_when=asyncio.FIRST_COMPLETED)
    trusted = ssl.create_default_context(cadata=made.pem.decode())
    async with httpx2.AsyncClient(verify=trusted, trust_env=False, timeout=60) as client:
        answer = await client.get(f"{reported.result()['http']}/ready")
    assert answer.status_code == 200
    assert ("its embedded object store does not" in answer.text) == warns
    assert (EMBEDDED_BEYOND in caplog.text) == warns
    running.cancel()
    await asyncio.wait((running,))


@pytest.mark.parametrize("replaced", [False, True])
async def test_it_ends_with_a_sentence_when_its_database_file_is_deleted_or_replaced(
    tmp_path: Path, facts: asyncio.Queue[dict[str, str]], monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    monkeypatch.setattr(process, "DATABASE_LOOK_S", 0.01)
    running = asyncio.create_task(run_control(_options(tmp_path), {}))
    reported = asyncio.create_task(facts.get())
    await asyncio.wait((running, reported), return_when=asyncio.FIRST_COMPLETED)
    reported.result()
    file = tmp_path / "stoker.db"
    if replaced:
        (tmp_path / "other.db").touch()
        os.replace(tmp_path / "other.db", file)
    else:
        file.unlink()
    why = "replaced by another file" if replaced else "deleted"
    with pytest.raises(StoreError, match=f"{file} was {why} while control was running; control ends"):
        await running


async def test_requests_end_before_the_sessions_whose_tunnels_they_take(
    tmp_path: Path, facts: asyncio.Queue[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    for owner in (server.HttpServer, Plane, GrpcServer):
        monkeypatch.setattr(owner, "stop", _noted(owner, ended))
    running = asyncio.create_task(run_control(_options(tmp_path), {}))
    reported = asyncio.create_task(facts.get())
    await asyncio.wait((running, reported), return_when=asyncio.FIRST_COMPLETED)
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert ended == ["HttpServer", "Plane", "GrpcServer"]


def _noted(owner: type[Any], ended: list[str]) -> Callable[[Any], Awaitable[None]]:
    stop = owner.stop

    async def noted(self: Any) -> None:
        await stop(self)
        ended.append(owner.__name__)

    return noted


def _options(tmp_path: Path, **overrides: Any) -> ControlOptions:
    return dataclasses.replace(ControlOptions(tmp_path, None, "127.0.0.1", 0, "127.0.0.1", 0), **overrides)


def test_tls_options_of_the_command_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "stoker.toml").write_text(
        '[tls]\ncert = "c.pem"\nkey = "/k.pem"\nclient_ca = "a.pem"\n[cors]\n'
    )
    config = load_config(tmp_path / "stoker.toml")
    of_file = TlsFiles(tmp_path / "c.pem", Path("/k.pem"), tmp_path / "a.pem")
    assert tls_files(_options(tmp_path), config) == of_file
    reported = TlsFiles(Path("x"), Path("y"))
    assert tls_files(_options(tmp_path, tls_cert=reported.cert, tls_key=reported.key), config) == reported
    assert tls_files(_options(tmp_path, tls_client_ca=Path("z")), config) == replace(
        of_file, client_ca=Path("z")
    )
    with pytest.raises(CliError, match="--tls-client-ca needs --tls-cert"):
        tls_files(_options(tmp_path, tls_client_ca=Path("z")), load_config(None))


async def test_a_hangup_shows_a_renewed_certificate_on_both_ports_and_ends_nothing(
    tmp_path: Path, facts: asyncio.Queue[dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    make_certificate(tmp_path)
    config = tmp_path / "stoker.toml"
    config.write_text('[tls]\ncert = "cert.pem"\nkey = "key.pem"\n')
    options = ControlOptions(tmp_path / "data", config, "127.0.0.1", 0, "127.0.0.1", 0)
    running = asyncio.create_task(run_control(options, {}))
    reported = asyncio.create_task(facts.get())
    await asyncio.wait((running, reported), return_when=asyncio.FIRST_COMPLETED)
    doors = [reported.result()[name].rpartition("/")[2].rpartition(":") for name in ("http", "grpc")]
    renewed = make_certificate(tmp_path).pem.decode()
    for shown in (False, True):
        for host, _, port in doors:
            pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
            assert (pem == renewed) is shown
        os.kill(os.getpid(), signal.SIGHUP)
        while not any("TLS files are applied" in line for line in caplog.messages):
            await asyncio.to_thread(lambda: None)
    assert not running.done()
    running.cancel()
    await asyncio.wait((running,))
