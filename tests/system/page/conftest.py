"""A real control and agent, `stoker page` beside them, and visitors in a real browser.

Pictures of the pages are kept in the folder that STOKER_PAGE_PICTURES names: `make pictures` makes those of
the documentation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from stoker.cli.processes.readiness import parse_ready
from tests.browser import CHROMIUM, LOOPBACK_ONLY
from tests.system.page.visitors import MARKUP, PATIENCE_MS, Visitor
from tests.system.stack import SOURCE, Stack, queue_endpoint

MODELS = "flux-mini,talk-mini"
SCHEMA = f"""
[endpoints.inputSchema.properties.{json.dumps(MARKUP)}]
type = "string"
description = {json.dumps(MARKUP)}
examples = [{json.dumps(MARKUP)}]
[endpoints.inputSchema.properties.text]
"""
ENDPOINTS = (
    queue_endpoint("echo", "outputs/echo.py").replace('name = "echo"', f"name = {json.dumps(MARKUP)}"),
    queue_endpoint("tells", "failing/raises_its_input.py") + SCHEMA,
    queue_endpoint("slow", "cancelling/slow_until_cancelled.py"),
    queue_endpoint("dies", "failing/kills_itself.py", maxAttempts=1),
    queue_endpoint("prints", "printing/prints_as_told.py"),
    queue_endpoint("once", "failing/dies_once_and_makes_a_file.py"),
    queue_endpoint("unlicensed", "starting/dies_at_import.py"),
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("stack"), *ENDPOINTS, hosted=("text-to-image", "talking-video"))
    made.pipelines = MODELS
    made.agent_options += ["--label", "tier=gold"]
    try:
        made.start()
        yield made
    finally:
        made.stop()


@contextmanager
def page_process(stack: Stack, folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """`stoker page` beside the stack's control; yields its address and its link."""
    read, write = os.pipe()
    command = [sys.executable, "-P", "-m", "stoker.cli", "page", "--url", stack.facts["http"], "--port", "0"]
    with (folder / "page.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options, "--ready-fd", str(write)],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "STOKER_API_KEY": stack.key},
            cwd=folder,
            pass_fds=[write],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(write)
    try:
        with open(read, "rb") as pipe:
            facts = parse_ready(pipe.readline())
        assert facts is not None, (folder / "page.log").read_text()
        yield dict(facts)
    finally:
        process.terminate()
        assert process.wait(60) == 0, (folder / "page.log").read_text()


@pytest.fixture(scope="module")
def facts(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with page_process(stack, tmp_path_factory.mktemp("page")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", f"--host-resolver-rules={LOOPBACK_ONLY}"]
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield made
        made.close()


@pytest.fixture
def visitor(browser: Browser, facts: dict[str, str], pictures: Path) -> Iterator[Visitor]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    expect.set_options(timeout=PATIENCE_MS)
    yield Visitor(context, facts["page"], pictures)
    context.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for pictures of pages."""
    named = os.environ.get("STOKER_PAGE_PICTURES")
    return Path(named) if named else tmp_path_factory.mktemp("pictures")
