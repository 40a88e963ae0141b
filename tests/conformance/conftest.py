"""One control and one agent for all the stock clients, and one interpreter for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.conformance.stock_client import PEERS, StockClient, javascript_client, python_client
from tests.system.stack import PROGRAMS, Stack, queue_endpoint, running

ENDPOINTS = (
    queue_endpoint("echo", "outputs/echo.py"),
    queue_endpoint("counts", "streams/generator.py"),
    queue_endpoint("lines", "streams/yields_lines_of_a_pipe.py"),
    queue_endpoint("raises", "failing/raises.py"),
    queue_endpoint("hears", "files/hears.py"),
    queue_endpoint("words", "streams/chat_words.py"),
    queue_endpoint("waits", "cancelling/slow_until_cancelled.py", executionTimeoutMs=120_000),
    queue_endpoint("overdue", "cancelling/slow_until_cancelled.py"),
    queue_endpoint(
        "llm",
        "",
        imageName=f"local:{PROGRAMS / 'language_model'}",
        dockerStartCmd=[str(PEERS / "python" / "bin" / "python"), "-u", "src/handler.py"],
    ),
)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("stack"), *ENDPOINTS) as stack:
        yield stack


@pytest.fixture(scope="session")
def overdue(stack: Stack) -> str:
    """A job that runs into its time limit, five seconds at least: it does so beside the other tests."""
    return stack.run("overdue", {}, policy={"executionTimeout": 5000})


@pytest.fixture
def occupied(stack: Stack) -> Iterator[str]:
    """A job that holds the one worker of `waits`; what is submitted there after it waits in the queue."""
    job = stack.run("waits", {})
    stack.in_progress("waits", job)
    yield job
    stack.http.post(f"/waits/cancel/{job}")


@pytest.fixture(scope="session")
def python(stack: Stack, overdue: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockClient]:
    folder = tmp_path_factory.mktemp("clients") / "python"
    with python_client("runpod_python.py", folder, stack.facts["http"], stack.key) as client:
        yield client


@pytest.fixture(scope="session")
def flash(stack: Stack, overdue: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockClient]:
    folder = tmp_path_factory.mktemp("clients") / "flash"
    with python_client("runpod_flash_models.py", folder, stack.facts["http"], stack.key) as client:
        yield client


@pytest.fixture(scope="session", params=["python", "javascript"])
def openai(
    request: pytest.FixtureRequest, stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StockClient]:
    """The official clients, one after the other."""
    folder = tmp_path_factory.mktemp("clients") / "openai"
    client = {
        "python": partial(python_client, "openai_python.py"),
        "javascript": partial(javascript_client, "openai.mjs"),
    }[request.param]
    with client(folder, stack.facts["http"], stack.key) as started:
        yield started


@pytest.fixture(scope="session")
def javascript(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockClient]:
    folder = tmp_path_factory.mktemp("clients") / "javascript"
    with javascript_client("runpod_sdk.mjs", folder, stack.facts["http"], stack.key) as client:
        yield client
