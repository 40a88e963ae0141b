"""The probe of control's pod: which of the two controls it sees, and the label that it writes once."""

from __future__ import annotations

import http.server
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kept_port import kept_port
from tests.load_module import load_module
from tests.servers.loopback_server import served

probe = load_module("pod_probe", Path(__file__).parents[2] / "deploy" / "helm" / "stoker" / "probe.py")


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers every request with the server's status, and notes it."""

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.command, self.path, self.headers, body))  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()

    do_GET = do_PATCH = _answer

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(status: int) -> Iterator[tuple[str, list[Any]]]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    server.status, server.asked = status, []  # type: ignore[attr-defined]
    with served(server):
        yield f"http://127.0.0.1:{server.server_address[1]}", server.asked  # type: ignore[attr-defined]


@pytest.mark.parametrize(("status", "expected"), [(200, ("serves", True)), (503, ("serves", False))])
def test_a_control_that_answers_serves_and_says_if_it_is_well(
    status: int, expected: tuple[str, bool]
) -> None:
    with serving(status) as (url, _):
        assert probe.look(f"{url}/ready") == expected


def test_a_control_that_listens_at_no_port_waits() -> None:
    with kept_port() as held:
        assert probe.look(f"https://127.0.0.1:{held.getsockname()[1]}/ready") == ("waits", True)


def test_a_control_that_does_not_answer_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "WITHIN_S", 0.05)
    with kept_port() as held:
        held.listen()
        assert probe.look(f"https://127.0.0.1:{held.getsockname()[1]}/ready") == ("", False)


def test_the_label_is_written_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESPACE", "prod")
    monkeypatch.setenv("POD", "mine-control-1")
    (tmp_path / "token").write_text("of-the-account\n")
    with serving(200) as (url, asked):
        for role in ("waits", "waits", "serves", "serves"):
            probe.write_label(role, url, tmp_path, tmp_path / "role")
    assert [body["metadata"]["labels"]["stoker/role"] for *_, body in asked] == ["waits", "serves"]
    method, path, headers, _ = asked[0]
    assert (method, path) == ("PATCH", "/api/v1/namespaces/prod/pods/mine-control-1")
    assert headers["authorization"] == "Bearer of-the-account"
    assert headers["content-type"] == "application/merge-patch+json"


def test_a_label_that_could_not_be_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESPACE", "prod")
    monkeypatch.setenv("POD", "mine-control-1")
    (tmp_path / "token").write_text("of-the-account")
    with serving(403) as (url, asked), pytest.raises(probe.urllib.error.HTTPError) as refused:
        probe.write_label("serves", url, tmp_path, tmp_path / "role")
    refused.value.close()
    assert len(asked) == 1
    assert not (tmp_path / "role").exists()
