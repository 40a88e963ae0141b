"""The commands of docs/operations about keys, nodes and looks inside, typed as they stand there, to real
processes. The names and addresses of the pages are replaced by those of the story."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.command_lines import lines
from tests.documentation.pages import Page
from tests.system.stack import SOURCE, START_S, Stack, queue_endpoint, until

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[2] / "docs" / "operations"
ENDPOINT = queue_endpoint("caption", "outputs/echo.py")
TOKEN = re.compile(r"\b[sj][kt]_[0-9a-f]+_[0-9a-f]+")


class Operator(Stack):
    """Somebody at a shell, with `stoker` as pip installs it. `names`: words of the pages, and their sense."""

    newcomer: Any

    def begin(self) -> None:
        self.start()
        self.set_shell()
        self.environment |= {"STOKER_URL": self.facts["http"], "STOKER_API_KEY": self.key}
        self.names = {
            "https://control.example.com": self.facts["http"],
            "localhost:8000": self.facts["http"].removeprefix("http://"),
            "control.example.com:8001 --tls-ca ca.pem": self.facts["grpc"],
            "NODE_ID": self.nodes()[0]["id"],
            "sk_…": self.key,
        }

    def set_shell(self) -> None:
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        stoker = programs / "stoker"
        stoker.write_text(f"#!{sys.executable} -P\nfrom stoker.cli.__main__ import main\nmain()\n")
        stoker.chmod(0o755)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("STOKER_")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCE),
            "STOKER_DATA_DIR": str(self.folder / "data"),
            "COLUMNS": "200",
        }

    def nodes(self) -> list[dict[str, Any]]:
        return list(json.loads(self.types("stoker node list --json")))

    def types(self, line: str, status: int = 0) -> str:
        for name, meant in getattr(self, "names", {}).items():
            line = line.replace(name, meant)
        ran = subprocess.run(
            ["bash", "-c", line],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert ran.returncode == status, f"{line}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def ends(self, name: str) -> None:
        assert self._ended(name), self.end_of_log(name)


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path, ENDPOINT)
    try:
        made.begin()
        yield made
    finally:
        made._ended("newcomer")
        made.stop()


def commands(page: str) -> list[str]:
    found = [text for block in Page.read(FOLDER / f"{page}.md").blocks("sh") for _, text in lines(block)]
    assert found, page
    return found


def test_a_first_key_and_what_it_makes(operator: Operator) -> None:
    for line in commands("first-key"):
        if line.startswith("stoker database"):
            continue  # on the host of control: tests/cli/database
        printed = operator.types(line)
        if "--name app" in line:
            made = TOKEN.search(printed)
            assert made is not None, printed
            operator.names["KEY_ID"] = made[0].split("_")[1]
    assert "app" not in operator.types("stoker key list")


def test_a_node_is_drained_and_taken_back(operator: Operator) -> None:
    typed = [line for line in commands("drain") if line.startswith("stoker node ")]
    assert [line.split()[2] for line in typed] == ["list", "drain", "drain", "drain", "resume"]
    for line in typed:
        operator.types(line)
        drained = "drain" in line
        assert operator.nodes()[0]["drained"] is drained
        if "--wait" in line or "--deadline" in line:
            assert operator.nodes()[0]["workers"] == 0
    assert operator.runsync("caption", {"n": 1})["output"] == {"n": 1}


def state_of(operator: Operator, node: str) -> str:
    return str(next(one["state"] for one in operator.nodes() if one["id"] == node))


def test_a_host_is_replaced(operator: Operator) -> None:
    old = operator.nodes()[0]["id"]
    for line in commands("replace-a-host"):
        if "stoker agent" in line:
            join = {"STOKER_JOIN_TOKEN": operator.names["jt_…"]}
            command = [
                "agent",
                "--control",
                operator.facts["grpc"],
                "--data-dir",
                str(operator.folder / "new"),
            ]
            operator.newcomer, _ = operator._start(command, "newcomer", join)
            until(lambda: len(operator.nodes()) == 2, START_S, "a second node")
            operator.ends("agent")
            continue
        if "delete" in line:
            until(lambda: state_of(operator, old) == "gone", START_S, "an old node that is gone", pause_s=1)
        printed = operator.types(line)
        if "--join" in line:
            made = TOKEN.search(printed)
            assert made is not None, printed
            operator.names["jt_…"] = made[0]
    (new,) = operator.nodes()
    assert new["id"] != old
    assert operator.runsync("caption", {"n": 1})["output"] == {"n": 1}


def test_the_looks_inside_and_a_scrape(operator: Operator) -> None:
    done = operator.runsync("caption", {"n": 1})
    operator.names |= {" ID ": f" {done['id']} "}
    first = Page.read(FOLDER / "look-inside.md").blocks("sh")[0]
    for _, line in lines(first):
        operator.types(line)
    for line in commands("graphs"):
        made = TOKEN.search(operator.types(line))
        assert made is not None
        url = f"{operator.facts['http']}/metrics"
        scraped = operator.types(f"curl -sf {url} -H 'Authorization: Bearer {made[0]}'")
        assert 'stoker_jobs_ended_total{endpoint="caption",state="completed"} 1' in scraped


RENEWED = "the node's certificate is good until"
TLS = """
[tls]
cert = "data/ca/control.pem"
key = "data/ca/control.key"
"""


def test_certificates_from_the_authority_to_its_rotation(tmp_path: Path) -> None:
    """Control and agent are the story's own: the commands of the page would not end. HTTP is in the clear, as
    for a proxy, and certificates are renewed at once and not after a day."""
    toml = Page.read(FOLDER / "certificates.md").blocks("toml")[0].text
    section = toml[toml.index("[agent_certificates]") :]
    operator = Operator(tmp_path, "behind_proxy = true", ENDPOINT, TLS, f"{section}life_s = 60\n")
    operator.set_shell()
    operator.names = {"issue control.example.com": "issue localhost 127.0.0.1"}
    typed = commands("certificates")
    begins = typed.index("stoker ca show") + 1
    try:
        for line in typed[:begins]:
            printed = operator.types(line)
        operator.agent_options += ["--ca-fingerprint", printed.splitlines()[0].split("\t")[-1]]
        operator.begin()
        operator.names["issue control.example.com"] = "issue localhost 127.0.0.1"
        for line in sorted(typed[begins:], key=lambda line: "revoke" in line):
            if line.startswith("systemctl reload"):
                reload(operator)
            elif "stoker agent" not in line:
                (is_turned_out if "revoke" in line else Operator.types)(operator, line)
    finally:
        operator.stop()


def reload(operator: Operator) -> None:
    """Reloads control, and waits until the node has its next certificate."""
    before = operator.log("control").count("TLS files are applied")
    operator.control.send_signal(signal.SIGHUP)
    until(lambda: operator.log("control").count("TLS files are applied") > before, START_S, "a reload")
    renewed = operator.log("agent").count(RENEWED)
    until(lambda: operator.log("agent").count(RENEWED) > renewed + 1, START_S, "a renewal after that")


def is_turned_out(operator: Operator, line: str) -> None:
    """The authority that the node pinned is gone by now: it comes back with the one that it was sent."""
    operator.kill("agent")
    operator.start_agent()
    assert operator.runsync("caption", {"n": 1})["output"] == {"n": 1}
    operator.types(line)
    until(lambda: operator.agent.poll() is not None, START_S, "the end of a node that was turned out")
    assert "its credential was revoked" in operator.log("control")
