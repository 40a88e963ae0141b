"""`stoker up` with real processes: what it starts, what it starts again, and that nothing outlives it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx2
import psutil
import pytest

from stoker.cli.processes.readiness import parse_ready
from stoker.client import Client
from tests.system.stack import until

HANDLERS = Path(__file__).parents[1] / "handlers"
SOURCE = Path(__file__).parents[2] / "src"
COMMAND = [sys.executable, "-P", "-m", "stoker.cli", "up", "--port", "0", "--no-hosted"]


class Up:
    """One `stoker up` in a folder of its own, with the echo handler behind an endpoint."""

    def __init__(self, folder: Path, more: str = "", *options: str, page: bool = False) -> None:
        self.folder, self.options = folder, (*options, *(() if page else ("--no-page",)))
        (folder / "handlers").mkdir(exist_ok=True)
        (folder / "stoker.toml").write_text(
            f"local_roots = {json.dumps([str(HANDLERS), str(folder / 'handlers')])}\n"
            f'[[endpoints]]\nid = "echo"\nworkersMin = 1\n'
            f'imageName = "local:{HANDLERS / "outputs/echo.py"}:handler"\n'
            f'[[endpoints]]\nid = "deaf"\nworkersMin = 1\n'
            f'imageName = "local:{HANDLERS / "cancelling/ignores_sigterm_in_c.py"}:handler"\n'
            f'{more}[aliases]\nparrot = "echo"\n'
        )
        self.process, self.url = self._start()

    def _start(self) -> tuple[subprocess.Popen[bytes], str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        read, write = os.pipe()
        with open(self.folder / "said", "ab") as log_file:
            process = subprocess.Popen(
                [*COMMAND, *self.options, "--ready-fd", str(write)],
                env={**environment, "PYTHONPATH": str(SOURCE), "COLUMNS": "200"},
                cwd=self.folder,
                pass_fds=[write],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )
        os.close(write)
        with open(read, "rb") as pipe:
            facts = parse_ready(pipe.readline())
        assert facts is not None, self.output()
        return process, facts["http"]

    def again(self) -> None:
        self.process, self.url = self._start()

    @property
    def key(self) -> str:
        return (self.folder / ".stoker" / "api_key").read_text().strip()

    def output(self) -> str:
        return (self.folder / "said").read_text()

    def below(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, part: str) -> psutil.Process:
        """Control or the agent."""
        for child in self.below():
            with contextlib.suppress(psutil.Error):  # others come and go
                if f"stoker.cli.daemons {part}" in " ".join(child.cmdline()):
                    return child
        raise AssertionError(f"there is no {part}: {self.output()}")

    def echo(self, value: object) -> object:
        with Client(self.url, self.key, timeout_s=60) as stoker:
            return stoker.runsync("echo", {"value": value}, wait_ms=60_000).output

    def stop(self) -> None:
        """One Ctrl-C. Everything that it had started has ended when it has."""
        started = self.below()
        assert started
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.output()
        assert psutil.wait_procs(started, timeout=30)[1] == []


@contextlib.contextmanager
def up(folder: Path, more: str = "", *options: str, page: bool = False) -> Iterator[Up]:
    one = Up(folder, more, *options, page=page)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.stop()


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One that ends by itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    return subprocess.run(
        [*COMMAND[:4], *arguments],
        env={**environment, "PYTHONPATH": str(SOURCE), "COLUMNS": "400"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def text_of(log: Path) -> str:
    """It is put aside by the next start, at any moment."""
    try:
        return log.read_text()
    except FileNotFoundError:
        return ""


def test_it_serves_and_a_part_that_dies_comes_back_where_it_was(tmp_path: Path) -> None:
    with up(tmp_path) as one:
        assert f"export STOKER_API_KEY={one.key}" in one.output()
        assert (tmp_path / ".stoker" / "api_key").stat().st_mode & 0o777 == 0o600
        assert one.echo(1) == {"value": 1}
        assert f"{one.url}/v2/parrot is echo" in one.output()
        second = command(tmp_path, *COMMAND[4:])
        assert (second.returncode, second.stderr.count("another `stoker up` is running")) == (1, 1)
        control, agent = one.child("control"), one.child("agent")
        for process in (control, agent):
            environment = process.environ()
            assert "STOKER_API_KEY" not in " ".join(process.cmdline())
            assert not [name for name in environment if name.startswith("STOKER_")], "to be read by nobody"
        control.kill()
        control.wait()
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=10)) as patient:
            assert patient.get(f"{one.url}/ping", timeout=60).status_code == 200, "on the port that it had"
        assert one.echo(2) == {"value": 2}
        assert one.child("agent").pid == agent.pid, "the agent was left alone"
    assert "control ended unexpectedly: killed by SIGKILL" in one.output()
    assert "stopping: running jobs get 5 s to end" in one.output()


@pytest.mark.slow
def test_control_comes_back_while_its_object_store_stands_still(tmp_path: Path) -> None:
    """Jobs without files go on; `/ready` names what does not."""
    with up(tmp_path) as one:
        assert one.echo(1) == {"value": 1}
        control = one.child("control")
        (store,) = [child for child in one.below() if "rclone" in child.name()]
        store.suspend()
        try:
            control.kill()
            control.wait()
            with httpx2.Client(transport=httpx2.HTTPTransport(retries=10), timeout=60) as patient:
                assert patient.get(f"{one.url}/ping").status_code == 200
                assert one.echo(2) == {"value": 2}
                ready = patient.get(f"{one.url}/ready")
                failing = [name for name, said in ready.json()["checks"].items() if said != "ok"]
                assert (ready.status_code, failing) == (503, ["objectStore"])
        finally:
            store.resume()
        until(lambda: httpx2.get(f"{one.url}/ready", timeout=60).status_code == 200, 60, "a ready control")


@pytest.mark.slow
def test_a_worker_that_keeps_ending_is_reported_with_its_reason_and_its_log(tmp_path: Path) -> None:
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "broken.py").write_text(
        "print('about to import', flush=True)\nimport no_such_module_at_all\n"
    )
    broken = (
        f'[[endpoints]]\nid = "broken"\nworkersMin = 1\nimageName = "local:{tmp_path}/handlers/broken.py:h"\n'
    )
    with up(tmp_path, broken) as one:
        until(lambda: "keeps ending" in one.output(), 60, "a word of it", one.output)
        (line,) = [line for line in one.output().splitlines() if "keeps ending" in line]
    assert "of endpoint broken keeps ending: " in line
    assert "No module named 'no_such_module_at_all'" in line
    log = Path(line.partition("its last lines: ")[2])
    assert log == tmp_path / ".stoker" / "logs" / "worker-broken.log"
    assert log.read_text().startswith("about to import\n")


def edit(file: Path, text: str) -> None:
    """All at once: nobody finds it empty."""
    new = file.parents[1] / "edited"
    new.write_text(text)
    new.replace(file)


ANSWERS = """
import pathlib, time
def handler(job):
    if job.input.get("wait"):
        while not pathlib.Path({go!r}).exists():
            time.sleep(0.05)
    return {answer}
"""


@pytest.mark.slow
def test_an_edited_handler_is_served_and_no_job_is_lost(tmp_path: Path) -> None:
    handler, go = tmp_path / "handlers" / "mine.py", tmp_path / "go"
    handler.parent.mkdir()
    handler.write_text(ANSWERS.format(go=str(go), answer=1))
    mine = (
        f'[[endpoints]]\nid = "mine"\nworkersMin = 1\nworkersMax = 2\nimageName = "local:{handler}:handler"\n'
    )
    with up(tmp_path, mine, "--reload") as one, Client(one.url, one.key, timeout_s=60, resends=50) as stoker:
        assert stoker.runsync("mine", {}, wait_ms=60_000).output == 1
        old = stoker.run("mine", {"wait": True})
        until(lambda: stoker.status("mine", old.id).status == "IN_PROGRESS", 60, "the job on a worker")
        edit(handler, ANSWERS.format(go=str(go), answer=2))
        until(lambda: "changed: the source of mine" in one.output(), 60, "a word of the change", one.output)
        until(lambda: stoker.runsync("mine", {}, wait_ms=60_000).output == 2, 60, "new code", one.output)
        go.touch()
        ended = stoker.wait("mine", old.id, timeout_s=60)
        assert (ended.output, ended.retries) == (1, 0), "it was ended by the worker that had begun it"

        config = tmp_path / "stoker.toml"
        good = config.read_text()
        edit(config, good + "\n[nonsense]\n")
        until(lambda: "the old configuration stays in use" in one.output(), 60, "a refusal", one.output)
        assert stoker.runsync("mine", {}, wait_ms=60_000).output == 2
        edit(config, good.replace('id = "mine"', 'id = "ours"'))
        until(lambda: "changed: stoker.toml" in one.output(), 60, "a word of the change", one.output)
        until(lambda: one.output().count("everything runs again") == 2, 60, "control again", one.output)
        assert stoker.runsync("ours", {}, wait_ms=60_000).output == 2


@pytest.mark.slow
def test_a_key_is_made_once_shown_once_and_once_revoked_named_by_its_file(tmp_path: Path) -> None:
    with up(tmp_path) as one:
        key = one.key
        one.stop()
        (tmp_path / "said").write_text("")
        one.again()
        assert one.key == key
        assert key not in one.output()
        assert one.echo("again") == {"value": "again"}, "what is kept is what is valid"
    assert command(tmp_path, "key", "list").stdout.count("file api_key") == 1
    assert command(tmp_path, "key", "revoke", key.split("_")[1]).returncode == 0
    refused = command(tmp_path, *COMMAND[4:])
    assert refused.returncode == 1
    kept = tmp_path / ".stoker" / "api_key"
    assert f"the API key in {kept} was revoked, or has expired: remove the file" in refused.stdout


@pytest.mark.slow
def test_nothing_outlives_it_even_when_it_is_killed(tmp_path: Path) -> None:
    with up(tmp_path) as one:
        assert one.echo(1) == {"value": 1}
        started = one.below()
        assert len(started) >= 4, "control, agent, worker, object store"
        one.process.kill()
        one.process.wait()
        _, alive = psutil.wait_procs(started, timeout=60)
        assert alive == []


@pytest.mark.slow
def test_killed_in_mid_job_it_starts_again_once_the_old_agent_has_ended(tmp_path: Path) -> None:
    with up(tmp_path) as one:
        with Client(one.url, one.key, timeout_s=60) as stoker:
            job = stoker.run("deaf", {}).id
            assert next(iter(stoker.events("deaf", job))).value["output"] == "stuck"
        started, old = one.below(), one.child("agent")
        old.suspend()  # so that it is surely there when the new one looks
        one.process.kill()
        one.process.wait()
        log = tmp_path / ".stoker" / "logs" / "agent.log"
        with ThreadPoolExecutor(1) as aside:
            again = aside.submit(one.again)
            try:
                message = "another agent is running on"
                until(lambda: message in text_of(log), 60, message)
            finally:
                old.resume()
            again.result(60)
        _, alive = psutil.wait_procs(started, timeout=60)
        assert alive == []
        assert one.echo(2) == {"value": 2}


@pytest.mark.slow
def test_the_link_that_it_prints_signs_in_to_the_page_once(tmp_path: Path) -> None:
    with up(tmp_path, page=True) as one, httpx2.Client(timeout=60, trust_env=False) as browser:
        until(lambda: "/sign-in?token=" in one.output(), 60, "the page's link")
        (link,) = re.findall(r"page +(http://\S+/sign-in\?token=\S+)", one.output())
        signed_in = browser.get(link)
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/")
        assert browser.get(httpx2.URL(link).join("/")).status_code == 200
        assert httpx2.get(link, trust_env=False).status_code == 403


def test_what_is_not_hosted_is_refused_before_anything_starts(tmp_path: Path) -> None:
    refused = command(tmp_path, "up", "--port", "0", "--hosted", "singing-video")
    assert refused.returncode == 1
    assert refused.stderr.startswith("stoker: there is no hosted endpoint 'singing-video'")
    assert not (tmp_path / ".stoker").exists()


@pytest.mark.slow
def test_a_change_replaces_control_and_fails_no_caller(tmp_path: Path) -> None:
    """Callers who repeat nothing: one with a kept connection, and one with a new one for each call."""
    with up(tmp_path, "", "--reload") as one, httpx2.Client(timeout=60, trust_env=False) as keeps:
        first, headers = one.child("control"), {"Authorization": f"Bearer {one.key}"}
        assert one.echo(1) == {"value": 1}
        with (tmp_path / "stoker.toml").open("a") as file:
            file.write("# changed\n")
        answers = 0
        while first.is_running() and first.status() != psutil.STATUS_ZOMBIE:
            for get in (keeps.get, partial(httpx2.get, timeout=60, trust_env=False)):
                assert get(f"{one.url}/v2/echo/health", headers=headers).status_code == 200
                answers += 1
        assert answers > 10
        assert one.echo(2) == {"value": 2}
        assert one.child("control").pid != first.pid
        assert "changed: stoker.toml" in one.output()
        assert "ended unexpectedly" not in one.output()
