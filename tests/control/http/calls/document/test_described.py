"""The application does what its OpenAPI document says: every operation, asked rightly and wrongly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.rules.attempts import Attempt, JobAttempts
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import AttemptLog, StoredChunk
from stoker.control.rules.types import JobView
from tests.control.http.calls.document.described import Described
from tests.control.http.calls.document.invocations import OPERATIONS, WITH_PARAMETERS
from tests.control.http.calls.fake_plane import KEY, FakePlane
from tests.simulation.virtual_loop import VirtualLoop

DONE = JobView("", "", JobState.COMPLETED, 0.0, worker="w", delay_ms=1, execution_ms=2, output=b'{"x":1}')


def full_plane() -> FakePlane:
    """A job in every state, with all that a record may carry."""
    plane = FakePlane(ends_at_once=DONE, patience=0.0)
    for state in JobState:
        reported = {"reason": "why", "error": "boom", "output": b"[1]", "progress": b'"half"'}
        plane.add(id=f"bare-{state}", state=state)
        plane.add(
            id=f"full-{state}", state=state, retries=2, delay_ms=3, execution_ms=4, worker="w", **reported
        )
        plane.chunks[f"full-{state}"] = [StoredChunk(1, n, b'{"n":1}') for n in range(3)]
        tried = Attempt(1, "w", "n", 1.0, 2, 3, 1.1, 1.2, 1.3, "lost", "it died")
        plane.tried[f"full-{state}"] = JobAttempts(1.0, 9.0, (tried, Attempt(2, "w", None, 2.0)))
        plane.written[f"full-{state}"] = (AttemptLog(1, "w", ("a",)), AttemptLog(2, "w", ()))
    return plane


@pytest.fixture(scope="module")
def described() -> Iterator[Described]:
    loop, plane = VirtualLoop(1, limit=10**9), full_plane()
    app = make_app(plane, ApiSettings(rate_limits=False))
    made = Described(app.app.openapi(), app, KEY, loop.run_until_complete)
    yield made
    loop.bury()
    loop.close()


IDS = [f"{much}-{state}" for much in ("bare", "full") for state in JobState]


def known(n: int) -> dict[str, str]:
    """Known ids three times in four."""
    if n % 4 == 3:
        return {}
    return {"endpoint_id": ("echo", "echo", "sized", "text-to-image")[n % 5 % 4], "job_id": IDS[n % len(IDS)]}


def test_every_operation_is_described(described: Described) -> None:
    for operations in described.operations.values():
        assert sorted(operations) == sorted(OPERATIONS)


@pytest.mark.parametrize("examples", [6, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_requested_as_described_is_answered_as_described(
    described: Described, operation: str, examples: int
) -> None:
    statuses = described.examine(operation, where=known, examples=examples, valid=True)
    assert 200 in statuses


@pytest.mark.parametrize("examples", [5, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("operation", WITH_PARAMETERS)
def test_what_is_requested_otherwise_is_refused_as_described(
    described: Described, operation: str, examples: int
) -> None:
    described.examine(operation, where=known, examples=examples, valid=False)
