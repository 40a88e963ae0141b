"""The dashboard and the alerts name only what a scrape has, and docs explain each metric and each alert."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from stoker.cli.agent.probes import metrics_of
from stoker.control.rules.types import Cost
from stoker.wire.messages import Device, DeviceSample, StartStage
from tests.control.plane_world import story, world
from tests.documentation.pages import Page

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "monitoring"
NAME = re.compile(r"\bstoker_[a-z_]+")
TYPE = re.compile(r"^# TYPE (stoker_\w+)", re.MULTILINE)
GPU = Device("GPU-1", "gpu", "H100", memory_total=80 << 30)
SAMPLE = DeviceSample("GPU-1", 1, 2, 3, 4.0, 5)
AGENT: Any = SimpleNamespace(
    settings=SimpleNamespace(agent_version="1", facts={"disk_free": "1", "disk_total": "2"}),
    connected=True,
    attempts=SimpleNamespace(held=tuple, upload_failures=1),
    reports=SimpleNamespace(unsent=0),
    workers=SimpleNamespace(held=tuple),
)
"""An agent without work, as far as its metrics look."""


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / "dashboard.json").read_text())["panels"])


def expressions() -> list[str]:
    return [rule["expr"] for rule in alerts()] + [
        target["expr"] for panel in panels() for target in panel["targets"]
    ]


async def scraped() -> str:
    """All that control and an agent have, once everything has happened."""
    async with world() as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks, devices=[GPU], samples=[SAMPLE])
        counters = w.plane.counters
        counters.claimed("echo")
        counters.started("echo", [StartStage("setup", 1)])
        counters.webhook(True)
        counters.upload_failed(own_bucket=False)
        counters.billed([Cost("endpoint", "echo", 1)])
        counters._lag.observe(0.1)
        for labelled in (counters._ended, counters._again):
            labelled.labels("echo", "x").inc()
        for timed in (counters._delay, counters._execution):
            timed.labels("echo").observe(1)
        return (await w.plane.scrapes.text() + metrics_of(AGENT)).decode()


@story
async def test_every_name_is_scraped() -> None:
    text = await scraped()
    wanted = {name for one in expressions() for name in NAME.findall(one)} - {"stoker_workers"}
    assert wanted <= set(NAME.findall(text))
    assert "# TYPE stoker_workers gauge" in text


@story
async def test_every_metric_is_in_the_docs() -> None:
    page = (ROOT / "docs" / "operations" / "graphs.md").read_text(encoding="utf-8")
    names = {name for name in TYPE.findall(await scraped()) if not name.endswith("_created")}
    assert sorted(name for name in names if f"`{name}`" not in page) == []


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_is_balanced(expression: str) -> None:
    for opens, closes in ("()", "{}", "[]"):
        assert expression.count(opens) == expression.count(closes)


def test_every_alert_names_its_section() -> None:
    for rule in alerts():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor == rule["alert"].lower()
        assert anchor in Page.read(ROOT / page).anchors()


def test_every_graph_is_explained() -> None:
    page = (ROOT / "docs" / "operations" / "graphs.md").read_text(encoding="utf-8")
    assert [panel["title"] for panel in panels() if panel["title"] not in page] == []


def test_no_two_panels_lie_on_each_other() -> None:
    places = [tuple(panel["gridPos"].values()) for panel in panels()]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels()})
