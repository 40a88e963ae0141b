"""The story told with jobs that are sold, and its end checked: each job ended once, and was billed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from stoker.client import Client
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.wire.messages import Price
from tests.servers.postgres_server import PostgresServer
from tests.system.faults.pair.portioned_callers import PortionedCallers
from tests.system.faults.pair.story import Stage, Story
from tests.system.faults.pair.two_controls import TwoControls, two_controls
from tests.system.stack import HANDLERS, START_S, until

NANO = 20
WORKERS = 2

SOLD = Endpoint(
    "sold",
    "default",
    "sold",
    1,
    EndpointVersion(
        f"{HANDLERS / 'recording/works_and_measures.py'}:handler", prices=(Price("letters", NANO),)
    ),
    hosted=True,
    origin="api",
    workers_min=WORKERS,
    workers_max=WORKERS,
    max_attempts=10,
)
"""An endpoint whose output has a price."""


def letters_of(number: int) -> int:
    return 1 + number % 7


def work(number: int, folder: Path) -> dict[str, Any]:
    return {"n": number, "ms": 5, "letters": letters_of(number), "dies": False, "runs": str(folder / "runs")}


def check_ends(controls: TwoControls, accepted: dict[str, int], own: list[str]) -> None:
    """Each ended once, with its own output."""
    found = controls.stack.health("sold")["jobs"]
    assert found["completed"] == len(accepted) + len(own), "one end for each, and no more"
    assert found["inQueue"] == found["inProgress"] == found["failed"] == 0
    with Client(controls.http, controls.stack.key, resends=5) as client:
        for job, number in accepted.items():
            output = client.status("sold", job).output
            assert output == {"n": number, "cost": letters_of(number) * NANO / 1e9}


def check_bills(database: str, letters: dict[str, int]) -> None:
    """What each job made is sold once, and the bills are the sum."""
    with psycopg.connect(database) as books:
        sold = books.execute("SELECT job, quantity, nano_usd FROM spans WHERE unit = 'letters'").fetchall()
        billed = books.execute("SELECT SUM(nano_usd) FROM bills WHERE resource = 'sold'").fetchone()
    assert len(sold) == len(letters)
    assert {job: quantity for job, quantity, _ in sold} == letters
    assert all(nano == quantity * NANO for _, quantity, nano in sold)
    assert billed == (sum(letters.values()) * NANO,)


def told(folder: Path, server: PostgresServer, jobs: int, pause_s: float) -> list[Stage]:
    """Tells the story, checks its end, and returns the cost of each stage."""
    inputs = [work(number, folder) for number in range(jobs)]
    database = server.fresh()
    with two_controls(folder, database, SOLD) as controls:
        stack = controls.stack
        callers = PortionedCallers(controls.http, stack.key, "sold", inputs)
        try:
            story = Story(controls, server, callers, lambda: work(0, folder))
            story.tell(jobs, pause_s)
        finally:
            callers.close()
        assert sorted(callers.accepted.values()) == list(range(jobs)), "none lost, and none made twice"
        wanted = jobs + len(story.own)
        until(
            lambda: stack.health("sold")["jobs"]["completed"] >= wanted,
            4 * START_S,
            "all ends",
            lambda: stack.health("sold"),
        )
        check_ends(controls, callers.accepted, story.own)
        letters = {job: letters_of(number) for job, number in callers.accepted.items()}
        check_bills(database, letters | dict.fromkeys(story.own, letters_of(0)))
    return story.stages
