"""Jobs, endpoints and nodes in a browser, as an operator sees them: what fails, and what is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from stoker.client import Client
from tests.system.page.visitors import BROWSING, MARKUP, Visitor, made_key
from tests.system.stack import HANDLERS, Stack, until

pytestmark = BROWSING


def test_a_running_job_is_cancelled_on_its_page(visitor: Visitor, stack: Stack) -> None:
    job = stack.run("slow", {})
    stack.in_progress("slow", job)
    visitor.signs_in(stack.key)
    page = visitor.opens(f"/jobs/slow/{job}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("cancelled", exact=True).first).to_be_visible()


def test_a_worker_that_crashes_is_shown_with_its_reason(visitor: Visitor, stack: Stack) -> None:
    job = stack.run("dies", {})
    stack.end_of("dies", job)
    visitor.signs_in(stack.key)
    page = visitor.opens(f"/jobs/dies/{job}")
    expect(page.get_by_text("Failed", exact=True)).to_be_visible()
    expect(page.get_by_text("the worker died: killed, likely out of memory")).to_be_visible()
    page = visitor.opens("/endpoints/unlicensed")
    expect(page.get_by_text("unhealthy", exact=True).first).to_be_visible()
    row = page.get_by_role("row").filter(has_text="unhealthy")
    expect(row).to_contain_text("no licence found")
    row.get_by_role("button").click()
    expect(page.get_by_role("log").get_by_text("no licence found").first).to_be_visible()


def test_a_job_tells_each_of_its_attempts(visitor: Visitor, stack: Stack) -> None:
    """Its worker died in the first one, and the second made a file."""
    stack.end_of("once", job := stack.run("once", {}))
    visitor.signs_in(stack.key)
    page = visitor.opens(f"/jobs/once/{job}")
    told = page.locator(".q-timeline__entry")
    expect(told.filter(has_text="Completed")).to_be_visible()
    titles = told.locator(".q-timeline__title").all_inner_texts()
    assert [title for title in titles if title != "Attempt 1 started"] == [  # it may have died at once
        *("Queued", "Attempt 1 assigned", "Attempt 1 lost"),
        *("Attempt 2 assigned", "Attempt 2 started", "Attempt 2 streamed", "Attempt 2 uploaded", "Completed"),
    ]
    expect(told.filter(has_text="Attempt 1 lost")).to_contain_text("the worker died")
    expect(told.filter(has_text="Attempt 2 uploaded")).to_contain_text("UTC")
    assert visitor.serious() == []
    visitor.keeps("job")
    assert visitor.errors == []


def test_a_job_that_failed_shows_its_input_and_is_tried_again(visitor: Visitor, stack: Stack) -> None:
    stack.end_of("tells", job := stack.run("tells", {"text": "it failed for this"}))
    visitor.signs_in(stack.key)
    page = visitor.opens(f"/jobs/tells/{job}")
    expect(page.get_by_text('"text": "it failed for this"')).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("it failed for this")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".q-timeline__title").filter(has_text="Attempt 1 failed")).to_be_visible()
    expect(page.get_by_text("Attempt 2 assigned")).to_be_visible()
    assert visitor.errors == []


def test_the_log_of_a_running_job_is_followed_until_it_is_cancelled(visitor: Visitor, stack: Stack) -> None:
    job = stack.run("prints", {"lines": 10_000, "pause": 0.05})
    visitor.signs_in(stack.key)
    page = visitor.opens(f"/jobs/prints/{job}")
    printed = page.get_by_role("log")
    expect(printed).to_contain_text("line 5")
    expect(page.get_by_text("in progress", exact=True)).to_be_visible()
    seen = printed.inner_text().count("\n")
    expect(printed).to_contain_text(f"line {seen + 20}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("cancelled", exact=True).first).to_be_visible()
    assert visitor.errors == []


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/", "There is no endpoint yet."),
        ("/jobs", "The page Endpoints makes one."),
        ("/endpoints", "Create one here"),
    ],
)
def test_a_page_that_is_empty_says_what_to_do_first(
    visitor: Visitor, stack: Stack, path: str, says: str
) -> None:
    visitor.signs_in(made_key(stack, {"scope": "restricted", "endpoints": {}}))
    expect(visitor.opens(path).get_by_text(says)).to_be_visible()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/jobs?endpoint=unlicensed", "The Playground runs one."),
        ("/resources?kind=Pods", "No pod yet. A pod is a container of your own"),
        ("/resources?kind=Volumes", "No volume yet. A volume is a folder on the nodes"),
    ],
)
def test_a_list_that_is_empty_says_how_it_fills(visitor: Visitor, stack: Stack, path: str, says: str) -> None:
    visitor.signs_in(stack.key)
    expect(visitor.opens(path).get_by_text(says)).to_be_visible()


def test_bills_are_a_chart_a_table_and_a_file(visitor: Visitor, stack: Stack) -> None:
    stack.end_of("echo", stack.run("echo", {"value": 1}))
    with Client(stack.facts["http"], stack.key) as stoker:
        until(lambda: "echo" in {row["endpointId"] for row in stoker.manage.bills("endpoints")}, 90, "a bill")
    visitor.signs_in(stack.key)
    page = visitor.opens("/billing")
    expect(page.get_by_role("img", name="Cost by day, in US dollars")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="echo")).to_contain_text("0.00")
    with page.expect_download() as begun:
        page.get_by_role("button", name="CSV").click()
    text = begun.value.path().read_text()
    assert "endpointId" in text.splitlines()[0]
    assert "echo" in text
    assert visitor.errors == []


def test_jobs_are_searched_by_their_error_and_their_worker(visitor: Visitor, stack: Stack) -> None:
    stack.end_of("dies", job := stack.run("dies", {}))
    visitor.signs_in(stack.key)
    page = visitor.opens("/jobs?endpoint=dies")
    page.get_by_label("Error has").fill("no such error")
    expect(page.get_by_text("No such job here.")).to_be_visible()
    page.get_by_label("Error has").fill("LIKELY out of memory")
    expect(page.get_by_role("cell", name=job)).to_be_visible()
    page.get_by_label("Worker", exact=True).fill("w-none")
    expect(page.get_by_text("No such job here.")).to_be_visible()
    page.get_by_label("Worker", exact=True).fill("")
    page.get_by_label("Until (UTC)").fill("2020-01-01")
    expect(page.get_by_text("No such job here.")).to_be_visible()
    page.get_by_label("Until (UTC)").fill("noon")
    expect(page.get_by_text("a time must be like 2026-11-28")).to_be_visible()
    assert visitor.errors == []


def test_a_node_is_drained_resumed_killed_and_seen_again(visitor: Visitor, stack: Stack) -> None:
    visitor.signs_in(stack.key)
    page = visitor.opens("/fleet")
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_text("drained", exact=True)).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("connected", exact=True)).to_be_visible()
    page.get_by_label("Name or id").fill("nobody is called so")
    expect(page.get_by_text("No host is so.")).to_be_visible()
    page.get_by_label("Name or id").fill("")
    expect(page.get_by_text("text-to-image").first).to_be_visible()
    visitor.keeps("fleet")
    stack.kill("agent")
    expect(page.get_by_text("silent", exact=True)).to_be_visible()
    stack.agent_options = ["--label", f"tier={MARKUP}"]
    stack.start_agent()
    expect(page.get_by_text("connected", exact=True)).to_be_visible()
    expect(page.get_by_text("onerror")).to_be_visible()
    assert page.locator("img[src=x]").count() == 0


def test_an_endpoint_is_made_edited_and_its_roll_out_watched(
    visitor: Visitor, stack: Stack, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    go.touch()
    visitor.signs_in(stack.key)
    page = visitor.opens("/resources?kind=Templates")
    page.get_by_role("button", name="Create").click()
    page.get_by_label("Name", exact=True).fill("waits")
    image = f"local:{HANDLERS / 'starting/waits_for_a_file.py'}:Handler"
    page.get_by_label("Image name", exact=True).fill(image)
    more = {"isServerless": True, "env": {"GO": str(go)}}
    page.get_by_label("More fields, as JSON").fill(json.dumps(more))
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    visitor.opens("/endpoints")
    page.get_by_role("button", name="Create an endpoint").click()
    page.get_by_label("Name", exact=True).fill("waits")
    page.get_by_role("combobox", name="Template").click()
    page.get_by_role("option", name="waits").click()
    page.get_by_label("More fields, as JSON").fill('{"workersMin": 1, "computeType": "CPU"}')
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_text("idle", exact=True)).to_be_visible()
    go.unlink()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("More fields, as JSON").fill('{"vcpuCount": 1}')
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Version 2: 0 ready")).to_be_visible()
    visitor.keeps("roll-out")
    go.touch()
    expect(page.get_by_text("Version 2: 0 ready")).to_be_hidden()
    expect(page.get_by_role("row").filter(has_text="idle").get_by_role("cell").nth(2)).to_have_text("2")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Endpoints")).to_be_visible()
    assert visitor.errors == []


def test_a_key_and_a_secret_are_made_and_deleted(visitor: Visitor, stack: Stack) -> None:
    visitor.signs_in(stack.key)
    page = visitor.opens("/resources?kind=Secrets")
    page.get_by_role("button", name="Create").click()
    page.get_by_label("Name", exact=True).fill("HF_TOKEN")
    page.get_by_label("Value", exact=True).fill("hunter2")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("cell", name="HF_TOKEN")).to_be_visible()
    assert page.get_by_text("hunter2").count() == 0
    page.get_by_role("row").filter(has_text="HF_TOKEN").get_by_role("checkbox").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No secret yet")).to_be_visible()
    visitor.opens("/resources?kind=Keys")
    page.get_by_role("button", name="Create").click()
    page.get_by_label("Name", exact=True).fill("a program")
    page.get_by_label("More fields, as JSON").fill('{"access": {"scope": "read"}}')
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_text("Shown this once: sk_")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("row").filter(has_text="a program").get_by_role("checkbox").click()
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("cell", name="a program")).to_be_hidden()
    visitor.opens("/resources?kind=Audit")
    expect(page.get_by_role("cell", name="/v1/secrets/HF_TOKEN").first).to_be_visible()
    assert visitor.errors == []
