"""SIGHUP to real processes: certificates are read again, and nothing ends."""

from __future__ import annotations

import signal
import ssl
from pathlib import Path

import httpx2
import pytest

from tests.certificates import make_certificate
from tests.system.stack import START_S, Stack, queue_endpoint, until

pytestmark = pytest.mark.slow
ENDPOINT = queue_endpoint("echo", "outputs/echo.py")


def shown_at(address: str) -> str:
    """The certificate that a new connection is shown."""
    host, _, port = address.removeprefix("https://").rpartition(":")
    return ssl.get_server_certificate((host, int(port)))


def test_control_and_agent_read_their_certificates_again_at_a_hangup(tmp_path: Path) -> None:
    first = make_certificate(tmp_path).pem.decode()
    stack = Stack(tmp_path, ENDPOINT, '[tls]\ncert = "cert.pem"\nkey = "key.pem"\n')
    stack.agent_options += ["--tls-ca", str(tmp_path / "cert.pem")]
    try:
        stack.control, stack.facts = stack._start(
            stack._control_command(), "control", stack._control_variables()
        )
        stack.start_agent()
        doors = (stack.facts["http"], stack.facts["grpc"])
        assert [shown_at(door) for door in doors] == [first, first]
        second = make_certificate(tmp_path).pem.decode()
        for name in ("control", "agent"):
            getattr(stack, name).send_signal(signal.SIGHUP)
            until(lambda name=name: "SIGHUP: " in stack.log(name), START_S, "a line on SIGHUP")
        assert [shown_at(door) for door in doors] == [second, second]
        context = ssl.create_default_context(cadata=second)
        headers = {"Authorization": f"Bearer {stack.key}"}
        answer = httpx2.post(
            f"{doors[0]}/v2/echo/runsync?wait=120000",
            json={"input": {"n": 1}},
            headers=headers,
            verify=context,
            trust_env=False,
            timeout=130,
        )
        assert answer.json()["output"] == {"n": 1}
        assert stack.control.poll() is None
        assert stack.agent.poll() is None
    finally:
        stack.stop()


def test_the_page_reads_its_certificate_again_at_a_hangup(tmp_path: Path) -> None:
    files = make_certificate(tmp_path).files
    stack = Stack(tmp_path)
    command = ["page", "--url", "http://127.0.0.1:9", "--port", "0"]
    command += ["--tls-cert", str(files.cert), "--tls-key", str(files.key)]
    try:
        page, facts = stack._start(command, "page", {})
        second = make_certificate(tmp_path).pem.decode()
        assert shown_at(facts["page"]) != second
        page.send_signal(signal.SIGHUP)
        until(lambda: shown_at(facts["page"]) == second, START_S, "the new certificate")
        assert page.poll() is None
    finally:
        stack._ended("page")


def test_up_hands_a_hangup_on_and_goes_on(tmp_path: Path) -> None:
    stack = Stack(tmp_path, ENDPOINT)
    command = ["up", "--no-hosted", "--no-page", "--port", "0", "--config", str(stack.config)]
    try:
        up, facts = stack._start([*command, "--data-dir", str(tmp_path / "data")], "up", {})
        up.send_signal(signal.SIGHUP)
        for name in ("control", "agent"):
            log = tmp_path / "data" / "logs" / f"{name}.log"
            until(lambda log=log: "SIGHUP: " in log.read_text(), START_S, f"a line of {name} on SIGHUP")
        assert httpx2.get(f"{facts['http']}/ping", trust_env=False, timeout=60).status_code == 200
        assert up.poll() is None
    finally:
        stack._ended("up")
