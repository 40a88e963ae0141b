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


def handler(folder: Path, name: str, said: str) -> None:
    """A handler that returns this text; a job with `go` ends once this file is there."""
    waits = "while job.input.get('go') and not os.path.exists(job.input['go']):\n        time.sleep(0.01)"
    (folder / f"{name}.py").write_text(
        f"import os\nimport time\n\n\ndef handler(job):\n    {waits}\n    return {said!r}\n"
    )


def declares(stack: Stack, *names: str) -> None:
    """Writes the file anew: an endpoint of each handler in its folder."""
    sections = (
        f'[[endpoints]]\nid = "{name}"\nimageName = "local:handlers/{file}.py:handler"\nworkersMin = 1\n'
        for name, file in (one.split("=") for one in names)
    )
    stack.config.write_text('local_roots = ["handlers"]\n' + "\n".join(sections))


def hang_up(stack: Stack, process: str, log: Path, line: str) -> None:
    """SIGHUP, and the line of control's log that follows."""
    before = log.read_text().count("SIGHUP: ")
    getattr(stack, process).send_signal(signal.SIGHUP)
    until(lambda: log.read_text().count("SIGHUP: ") > before, START_S, "a line on SIGHUP")
    assert line in log.read_text().rpartition("SIGHUP: ")[2]


def test_control_takes_over_the_endpoints_of_its_file_at_a_hangup(tmp_path: Path) -> None:
    """A job of a changed endpoint runs on; its next one runs the new code. A file that is broken changes
    nothing."""
    code, log = tmp_path / "handlers", tmp_path / "control.log"
    code.mkdir()
    for name in ("old", "new"):
        handler(code, name, name)
    stack = Stack(tmp_path)
    declares(stack, "changes=old", "goes=new")
    try:
        stack.start()
        assert stack.runsync("goes", {})["output"] == "new"
        job = stack.run("changes", {"go": str(tmp_path / "go")})
        until(lambda: stack.status("changes", job)["status"] == "IN_PROGRESS", START_S, "a job that runs")
        declares(stack, "changes=new", "comes=new")
        hang_up(stack, "control", log, "endpoints comes (new), changes (changed), goes (deleted); ")
        assert stack.runsync("comes", {})["output"] == "new"
        assert stack.http.get("/goes/health").status_code == 404
        assert stack.status("changes", job)["status"] == "IN_PROGRESS"
        declares(stack, "changes=nowhere")
        hang_up(stack, "control", log, "nothing was changed: ")
        assert "there is none at" in stack.log("control")
        (tmp_path / "go").touch()
        assert stack.end_of("changes", job)["output"] == "old"
        assert stack.runsync("changes", {})["output"] == "new"
        assert stack.runsync("comes", {})["output"] == "new"
        assert (stack.control.poll(), stack.agent.poll()) == (None, None)
    finally:
        stack.stop()


def test_up_takes_over_the_endpoints_of_its_file_at_a_hangup(tmp_path: Path) -> None:
    (tmp_path / "handlers").mkdir()
    for name in ("old", "new"):
        handler(tmp_path / "handlers", name, name)
    stack = Stack(tmp_path)
    declares(stack, "echo=old")
    command = ["up", "--no-hosted", "--no-page", "--port", "0", "--config", str(stack.config)]
    variables = {"STOKER_API_KEY": stack.key}
    try:
        _, stack.facts = stack._start([*command, "--data-dir", str(tmp_path / "data")], "up", variables)
        stack._call_control()
        assert stack.runsync("echo", {})["output"] == "old"
        declares(stack, "echo=new", "more=old")
        log = tmp_path / "data" / "logs" / "control.log"
        hang_up(stack, "up", log, "endpoints more (new), echo (changed); ")
        assert stack.runsync("more", {})["output"] == "old"
        until(lambda: stack.runsync("echo", {})["output"] == "new", START_S, "the new code")
    finally:
        stack._ended("up")
        if hasattr(stack, "http"):
            stack.http.close()
