"""The plane in memory answers HTTP as the parts of the real one do: functions have the same parameters."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

from stoker.control.auth.callers import Callers
from stoker.control.jobs.commands import JobCommands
from stoker.control.jobs.queries import JobQueries
from stoker.control.jobs.uploaded_files import UploadedFiles
from stoker.control.scheduling.cluster_state import ClusterState
from tests.control.http.calls.fake_plane import FakePlane

CALLED: dict[type, str] = {
    JobCommands: "submit run_sync cancel retry purge",
    JobQueries: "status view wait requests logs health poll_stream advance follow follow_logs",
    Callers: "find",
    UploadedFiles: "keep",
    ClusterState: "ready_workers",
}
"""What `stoker.control.http.calls` calls of each part."""


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each."""
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(
    ("part", "names"),
    list(CALLED.items()),
)
def test_the_fake_answers_as_the_part_does(part: type, names: str) -> None:
    for name in names.split():
        real, answer = getattr(part, name), getattr(FakePlane, name)
        assert parameters(answer) == parameters(real), name
        assert inspect.iscoroutinefunction(answer) == inspect.iscoroutinefunction(real), name
        if name not in {"follow", "follow_logs"}:  # an iterator there may be a generator here
            assert get_type_hints(answer) == get_type_hints(real), name
