"""The dashboard and the alerts name only what a scrape has, and docs say what to do when each alert rings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stoker.wire.messages import Device, DeviceSample, StartStage
from tests.control.plane_world import story, world

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "monitoring"
NAME = re.compile(r"\bstoker_[a-z_]+")
GPU = Device("GPU-1", "gpu", "H100", memory_total=80 << 30)
SAMPLE = DeviceSample("GPU-1", 1, 2, 3, 4.0, 5)


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / "dashboard.json").read_text())["panels"])


def expressions() -> list[str]:
    return [rule["expr"] for rule in alerts()] + [
        target["expr"] for panel in panels() for target in panel["targets"]
    ]


@story
async def test_every_name_is_scraped() -> None:
    async with world() as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks, devices=[GPU], samples=[SAMPLE])
        events = w.plane.events
        events.claimed("echo")
        events.started("echo", [StartStage("setup", 1)])
        events.webhook(True)
        events._lag.observe(0.1)
        for labelled in (events._ended, events._again):
            labelled.labels("echo", "x").inc()
        for timed in (events._delay, events._execution):
            timed.labels("echo").observe(1)
        text = (await w.plane.scrapes.text()).decode()
        wanted = {name for one in expressions() for name in NAME.findall(one)} - {"stoker_workers"}
        assert wanted <= set(NAME.findall(text))
        assert "# TYPE stoker_workers gauge" in text


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_is_balanced(expression: str) -> None:
    for opens, closes in ("()", "{}", "[]"):
        assert expression.count(opens) == expression.count(closes)


def test_every_alert_has_a_paragraph() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in alerts() if f"`{rule['alert']}`" not in page] == []


def test_no_two_panels_lie_on_each_other() -> None:
    places = [tuple(panel["gridPos"].values()) for panel in panels()]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels()})
