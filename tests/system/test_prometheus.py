"""A real Prometheus with the files of deploy/monitoring, which scrapes a real control and agent.

Each target is up, each rule and each expression of the dashboard evaluates, and a dead control rings.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.kept_port import kept_port
from tests.system.stack import START_S, Stack, queue_endpoint, running, until

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
LISTENS = re.compile(r'msg="Listening on" address=(\S+)')
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="Prometheus is not installed; `apt-get install prometheus` brings it",
    ),
]


def promtool(*arguments: str) -> str:
    ran = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_promtool_accepts_the_files() -> None:
    assert "SUCCESS: " in promtool("check", "rules", str(FOLDER / "alerts.yml"))
    promtool("check", "config", "--syntax-only", str(FOLDER / "prometheus.yml"))


SERIES = [
    {"series": 'stoker_certificate_seconds{certificate="control"}', "values": "1296000-60x4320"},
    {"series": 'stoker_certificate_seconds{certificate="authority"}', "values": "31536000-60x4320"},
    {"series": 'stoker_node_certificate_seconds{node="renews"}', "values": " ".join(["345600-60x1439"] * 3)},
    {"series": 'stoker_node_certificate_seconds{node="forgets"}', "values": "345600-60x4320"},
]
"""Minute by minute: of control 15 days are left; of nodes four, and one of them has them again each day."""


@pytest.mark.parametrize(
    ("at", "alert", "rings"),
    [
        ("23h", "StokerCertificateEnds", ""),
        ("25h", "StokerCertificateEnds", '{certificate="control"}'),
        ("47h", "StokerNodeCertificateEnds", ""),
        ("49h", "StokerNodeCertificateEnds", '{node="forgets"}'),
    ],
)
def test_a_certificate_that_is_not_renewed_rings_in_time(
    tmp_path: Path, at: str, alert: str, rings: str
) -> None:
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    look = {
        "expr": f'count by (certificate, node) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
        "eval_time": at,
        "exp_samples": [{"labels": rings, "value": 1}] if rings else [],
    }
    test = {"interval": "1m", "input_series": SERIES, "promql_expr_test": [look]}
    (tmp_path / "story.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": [test]}))
    promtool("test", "rules", str(tmp_path / "story.yml"))


class Prometheus:
    """A Prometheus that has the shipped configuration, but for the addresses, the key and the pace."""

    def __init__(self, folder: Path, stack: Stack, agent: str) -> None:
        shutil.copy(FOLDER / "alerts.yml", folder)
        (folder / "stoker.key").write_text(stack.key)
        config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
        config["global"] |= {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        jobs = {job["job_name"]: job for job in config["scrape_configs"]}
        jobs["stoker"] |= {"scheme": "http", "static_configs": [{"targets": [stack.facts["http"][7:]]}]}
        jobs["stoker"]["authorization"] = {"credentials_file": "stoker.key"}
        jobs["stoker-agents"]["static_configs"] = [{"targets": [agent]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = folder / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'series'}",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stdout=log,
                stderr=log,
            )
        self._http = httpx2.Client(trust_env=False, timeout=60)

    def wait(self) -> None:
        until(
            lambda: bool(LISTENS.search(self.log)) or self._process.poll() is not None, START_S, "Prometheus"
        )
        listens = LISTENS.search(self.log)
        assert listens is not None, self.log
        self._http.base_url = f"http://{listens[1]}/api/v1"

    @property
    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str, **query: str) -> Any:
        answer = self._http.get(path, params=query).json()
        assert answer["status"] == "success", (query, answer)
        return answer["data"]

    def query(self, expression: str) -> list[Any]:
        return list(self.get("/query", query=expression)["result"])

    def stop(self) -> None:
        self._http.close()
        self._process.terminate()
        self._process.wait()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[tuple[Stack, str]]:
    with kept_port() as port:
        agent = f"127.0.0.1:{port.getsockname()[1]}"
        (tmp_path / "stack").mkdir()
        echo = queue_endpoint("echo", "outputs/echo.py")
        with running(tmp_path / "stack", echo, options=["--probes", agent]) as made:
            yield made, agent


@pytest.fixture
def prometheus(tmp_path: Path, stack: tuple[Stack, str]) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path, *stack)
    try:
        made.wait()
        yield made
    finally:
        made.stop()


def dashboard() -> list[str]:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [target["expr"].replace("$endpoint", ".*") for panel in panels for target in panel["targets"]]


def test_it_scrapes_evaluates_and_rings(stack: tuple[Stack, str], prometheus: Prometheus) -> None:
    service, _ = stack
    assert service.runsync("echo", {"n": 1})["output"] == {"n": 1}

    def targets() -> dict[str, tuple[str, str]]:
        found = prometheus.get("/targets")["activeTargets"]
        return {one["labels"]["job"]: (one["health"], one["lastError"]) for one in found}

    def rules() -> dict[str, str]:
        (group,) = prometheus.get("/rules")["groups"]
        return {
            rule["name"]: f"{rule['health']} {rule.get('lastError', '')}".strip() for rule in group["rules"]
        }

    both = {"stoker": ("up", ""), "stoker-agents": ("up", "")}
    until(lambda: targets() == both, START_S, "targets that are up", targets)
    shipped = {
        rule["alert"] for rule in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    }
    until(lambda: rules() == dict.fromkeys(shipped, "ok"), START_S, "rules that evaluate", rules)
    ended = 'stoker_jobs_ended_total{endpoint="echo",state="completed"}'
    until(lambda: [one["value"][1] for one in prometheus.query(ended)] == ["1"], START_S, "the job's end")
    for expression in dashboard():
        prometheus.query(expression)
    ringing = 'ALERTS{alertname="StokerDown"}'
    assert prometheus.query(ringing) == []
    service.kill("control")
    until(lambda: bool(prometheus.query(ringing)), START_S, "an alert for a dead control")
    service.start_control()
    until(
        lambda: targets() == both and not prometheus.query(ringing), START_S, "an end of the alert", targets
    )
